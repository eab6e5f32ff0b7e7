#include "rules/rule.h"

#include <gtest/gtest.h>

#include "rules/registry.h"

namespace sherd::rules {
namespace {

std::string problem(const char* text) {
  try {
    parse_rule(text);
  } catch (const RuleError& error) {
    return error.problem;
  }
  return "";
}

TEST(RuleTest, ParsesAtCompileTime) {
  constexpr Rule kRule = parse_rule("+, i k, k j -> i j | reduce(max) k, linear 0+1 2, whole i, when groups=1");
  static_assert(kRule.num_inputs == 3 && kRule.num_outputs == 1 && kRule.num_factors == 3 && kRule.num_linear == 2);
  static_assert(kRule.inputs[0].added && kRule.guard.value == 1);
  EXPECT_EQ(kRule.guard.argument, "groups");
}

TEST(RuleTest, SaysWhatIsWrong) {
  EXPECT_EQ(problem("i k, k j -> i j"), "a factor on one side only needs a clause");
  EXPECT_EQ(problem("i -> i j"), "a factor of outputs alone must be whole");
  EXPECT_EQ(problem("i i -> i"), "a factor stands twice in one operand");
  EXPECT_EQ(problem("i k"), "expected '->' between inputs and outputs");
  EXPECT_EQ(problem("* * -> *"), "one '*' per operand");
  EXPECT_EQ(problem("i -> i | reduce"), "the clause needs a factor");
  EXPECT_EQ(problem("i -> i | same"), "the clause needs a factor");
  EXPECT_EQ(problem("i -> i | size"), "size needs an argument of the operator");
  EXPECT_EQ(problem("i -> i | whole q"), "a clause names a factor that no operand has");
  EXPECT_EQ(problem("i -> i | linear 3"), "linear names an input that the rule does not have");
  EXPECT_EQ(problem("i -> i | linear 0+-1"), "linear names an input that the rule does not have");
  EXPECT_EQ(problem("i -> i | shape 99"), "shape names an input that the rule does not have");
  EXPECT_EQ(problem("i -> i | when n=99999999999999999999"), "a number is too large");
  EXPECT_EQ(problem("i -> i | empty )"), "text after the rule's end");
  EXPECT_EQ(problem("i -> +"), "'+' marks inputs");
  EXPECT_EQ(problem("i -> i | linear"), "linear needs the numbers of inputs");
  EXPECT_EQ(problem("i -> i | linear 0 0 0 0 0 0 0"), "too many linear sets");
  EXPECT_EQ(problem("i -> i | shape"), "shape needs the numbers of inputs");
  EXPECT_EQ(problem("i -> i | i="), "expected the name of an argument");
  EXPECT_EQ(problem("i, i, i, i, i, i, i, i, i, i, i, i, i -> i"), "too many operands");
  EXPECT_EQ(problem("a b c d e f g h i j k -> a"), "too many dims");
  EXPECT_EQ(problem("a b c d e f g h i, j k l m n o p q r, s t u v w x y -> a"), "too many factors");
  EXPECT_EQ(problem("i -> i | frobnicate i"),
            "a clause is reduce, whole, mask, same, linear, shape, size, empty, when, or factor=argument");
  EXPECT_EQ(problem("i -> i extra, | x"),
            "a clause is reduce, whole, mask, same, linear, shape, size, empty, when, or factor=argument");
}

TEST(RuleTest, ASizeArgumentMustHaveTheOutputsDims) {
  OpCall call;
  call.op = "aten::upsample_nearest1d_backward";
  call.tensors = {{{4, 3, 8}, {}}};
  call.plain.push_back({"input_size", 2, Dims{4, 3, 4}});
  const auto rule = find_rule(call);
  ASSERT_TRUE(rule);
  EXPECT_EQ(output_shape(*rule, 0), (Dims{4, 3, 4}));
  ASSERT_EQ(rule->sizes.size(), 1U);
  EXPECT_EQ(rule->sizes[0].argument, 2);
  call.plain[0].value = Dims{3, 4};
  EXPECT_FALSE(find_rule(call));
}

TEST(RuleTest, OutputsThatDoNotDependOnAFactorStayWhole) {
  OpCall call;
  call.op = "aten::triangular_solve";
  call.tensors = {{{4, 6}, {}}, {{4, 4}, {}}};
  call.num_outputs = 2;
  const auto rule = find_rule(call);
  ASSERT_TRUE(rule);
  EXPECT_TRUE(rule->outputs[0].same_for.empty());
  EXPECT_EQ(rule->outputs[1].same_for.size(), 1U);
  EXPECT_TRUE(rule->takes_empty);
}

// As torch broadcasts: a vector meets the last dim of a matrix.
TEST(RuleTest, TheDimsOfAGroupMeetFromTheRight) {
  OpCall call;
  call.op = "aten::mse_loss";
  call.tensors = {{{4, 1}, {}}, {{4}, {}}};
  call.plain.push_back({"reduction", 2, int64_t{2}});
  const auto rule = find_rule(call);
  ASSERT_TRUE(rule);
  EXPECT_EQ(operands_text(*rule), "d0 1, d1 ->");
  std::swap(call.tensors[0], call.tensors[1]);
  EXPECT_EQ(operands_text(*find_rule(call)), "d1, d0 1 ->");
}

TEST(RuleTest, ADimThatIsNamedTwiceHasNoRule) {
  OpCall call;
  call.op = "aten::sum";
  call.overload = "dim_IntList";
  call.tensors = {{{4, 3}, {}}};
  call.plain.push_back({"dim", 1, Dims{1, -1}});
  EXPECT_FALSE(find_rule(call));
}

TEST(RuleTest, ABatchNormThatServesIsFreeInEveryDim) {
  OpCall call;
  call.tensors = {{{4, 3, 5}, {}}, {{3}, {}}, {{3}, {}}, {{3}, {}}, {{3}, {}}};
  for (const char* op : {"aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_no_update"}) {
    call.op = op;
    call.num_outputs = call.op.ends_with("update") ? 4 : 3;
    const auto rule = find_rule(call);
    ASSERT_TRUE(rule) << op;
    for (const DimFactors& dim : rule->inputs[0].dims) EXPECT_EQ(dim.size(), 1U) << op;
  }
  call.op = "aten::_batch_norm_with_update";
  const auto training = find_rule(call);
  ASSERT_TRUE(training);
  EXPECT_TRUE(training->inputs[0].dims[0].empty());
}

TEST(RuleTest, InPlaceOperatorsHaveTheRuleOfTheirBase) {
  EXPECT_EQ(base_name("aten::add_"), "aten::add");
  EXPECT_EQ(base_name("aten::add"), "aten::add");
  EXPECT_EQ(base_name("aten::__ixor__"), "aten::__ixor__");
  EXPECT_FALSE(rule_texts("aten::mm").empty());
}

TEST(RuleTest, AUsersRuleIsRefusedWithItsText) {
  try {
    add_rule("mylib::op", "i k, k j -> i j");
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string(error.what()),
              "register_rule: a factor on one side only needs a clause\n"
              "  operator: mylib::op\n"
              "  rule: \"i k, k j -> i j\"\n"
              "  at: character 2\n"
              "  help: \"i k, k j -> i j | reduce k, linear 0 1\"");
  }
}

}  // namespace
}  // namespace sherd::rules
