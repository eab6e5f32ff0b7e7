#include "sherd/explain.h"

#include <gtest/gtest.h>

#include "rules/registry.h"

namespace sherd {
namespace {

using Source = Explanation::Source;

OperatorCall call_of(const char* op, const Mesh& mesh, const std::vector<const char*>& operands) {
  OperatorCall call{.op = op, .operands = {}};
  for (const char* text : operands) {
    call.operands.push_back(std::string(text) == "-" ? std::nullopt : std::optional(parse_tensor(text, mesh)));
  }
  return call;
}

Explanation explained(const char* op, const char* mesh_text, const std::vector<const char*>& operands,
                      std::vector<std::pair<std::string, ArgumentValue>> arguments = {}) {
  const Mesh mesh = parse_mesh(mesh_text);
  OperatorCall call = call_of(op, mesh, operands);
  call.arguments = std::move(arguments);
  return explain(call, mesh);
}

std::string outputs(const Explanation& e) {
  std::string text;
  for (const auto& output : e.outputs) text += (text.empty() ? "" : ", ") + to_string(output, e.mesh);
  return text;
}

TEST(ExplainTest, SaysWhatEachAxisDoes) {
  const auto e = explained("mm", "[dp=2, tp=4]", {"f32[64@dp, 32@tp]", "f32[32@tp, 16]"});
  EXPECT_EQ(e.source, Source::table);
  ASSERT_EQ(e.axes.size(), 2U);
  EXPECT_EQ(e.axes[0].factor, "i");
  EXPECT_FALSE(e.axes[0].output_is_part);
  EXPECT_EQ(e.axes[1].factor, "k");
  EXPECT_EQ(e.axes[1].output_is_part, ReduceOp::sum);
  EXPECT_EQ(outputs(e), "f32[64@dp, 16] P(sum)@tp");
}

TEST(ExplainTest, NamesTheOperandsThatStayPartial) {
  const auto e = explained("add", "[a=2]", {"f32[4] P(sum)@a", "f32[4] P(sum)@a"});
  EXPECT_EQ(e.axes[0].partial_operands, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(e.bytes, 0);
}

TEST(ExplainTest, CountsTheBytesOfEveryStep) {
  const auto e = explained("add", "[a=2]", {"f64[4@a, 6]", "f64[4, 6@a]"});
  ASSERT_EQ(e.operands[1].steps.size(), 1U);
  EXPECT_EQ(e.operands[1].steps[0].text, "exchange@a");
  EXPECT_EQ(e.operands[1].steps[0].bytes, 48);  // half of the half that it shall hold
  EXPECT_EQ(e.bytes, 48);
}

TEST(ExplainTest, AnInPlaceOperatorKeepsItsPlacements) {
  const auto plain = explained("mul", "[a=2]", {"f32[4]", "f32[4] P(sum)@a"});
  EXPECT_EQ(outputs(plain), "f32[4] P(sum)@a");
  EXPECT_EQ(plain.bytes, 0);
  const auto in_place = explained("mul_", "[a=2]", {"f32[4]", "f32[4] P(sum)@a"});
  EXPECT_EQ(outputs(in_place), "f32[4]");
  EXPECT_GT(in_place.bytes, 0);
}

TEST(ExplainTest, WhatCannotBeKeptGoesThereAndBack) {
  const auto e = explained("cumsum_", "[a=2]", {"f32[4@a, 6]"}, {{"dim", int64_t{0}}});
  EXPECT_FALSE(e.operands[0].steps.empty());
  EXPECT_FALSE(e.operands[0].back.empty());
  EXPECT_EQ(outputs(e), "f32[4@a, 6]");
}

TEST(ExplainTest, AnOverloadIsKnownByItsArgument) {
  EXPECT_EQ(explained("max", "[a=2]", {"f32[4, 6]"}).op, "max");
  const auto e = explained("max", "[a=2]", {"f32[4@a, 6]"}, {{"dim", int64_t{1}}});
  EXPECT_EQ(e.op, "max.dim");
  EXPECT_EQ(outputs(e), "f32[4@a], i64[4@a]");
}

TEST(ExplainTest, SizesThatTheRuleDoesNotKnowAreLeftOpen) {
  EXPECT_EQ(outputs(explained("avg_pool2d", "[a=2]", {"f32[4@a, 3, 8, 8]"})), "f32[4@a, 3, ?, ?]");
}

TEST(ExplainTest, KnowsTheSizesOfViews) {
  const auto dim = [](int64_t d) { return std::pair<std::string, ArgumentValue>("dim", d); };
  EXPECT_EQ(outputs(explained("slice", "[a=2]", {"f32[8, 6@a]"},
                              {dim(0), {"start", int64_t{1}}, {"end", int64_t{-1}}, {"step", int64_t{2}}})),
            "f32[3, 6@a]");
  EXPECT_EQ(outputs(explained("cat", "[a=2]", {"f32[4@a, 3]", "f32[4@a, 5]"}, {dim(-1)})), "f32[4@a, 8]");
  EXPECT_EQ(outputs(explained("stack", "[a=2]", {"f32[4@a]", "f32[4@a]"}, {dim(0)})), "f32[2, 4@a]");
  EXPECT_EQ(outputs(explained("expand", "[a=2]", {"f32[4@a, 1]"}, {{"size", Dims{2, -1, 5}}})), "f32[2, 4@a, 5]");
  EXPECT_EQ(outputs(explained("unsqueeze", "[a=2]", {"f32[4@a]"}, {dim(0)})), "f32[1, 4@a]");
  EXPECT_EQ(outputs(explained("sum", "[a=2]", {"f32[4@a, 6]"}, {dim(1), {"keepdim", true}})), "f32[4@a, 1]");
}

TEST(ExplainTest, ADimThatIsNotThereIsRefused) {
  for (const char* op : {"transpose", "select", "slice", "unsqueeze", "cat", "stack", "sum", "permute"}) {
    EXPECT_THROW(explained(op, "[a=2]", {"f32[4, 6]"},
                           {{"dim", int64_t{7}}, {"dim0", int64_t{0}}, {"dim1", int64_t{7}}, {"dims", Dims{0, 7}}}),
                 std::invalid_argument)
        << op;
  }
}

TEST(ExplainTest, ARuleOfYoursIsTried) {
  const Mesh mesh = parse_mesh("[a=2]");
  OperatorCall call = call_of("mylib::ffn", mesh, {"f32[8, 6@a]", "f32[6@a, 4]"});
  EXPECT_EQ(explain(call, mesh).source, Source::none);
  call.rule = "b d, d f -> b f | reduce d";
  const auto e = explain(call, mesh);
  EXPECT_EQ(e.source, Source::yours);
  EXPECT_EQ(outputs(e), "f32[8, 4] P(sum)@a");
}

TEST(ExplainTest, AnyNumberOfOperandsGoTogether) {
  const auto e = explained("cat", "[a=2]", std::vector<const char*>(200, "f32[4@a, 3]"), {{"dim", int64_t{1}}});
  EXPECT_EQ(outputs(e), "f32[4@a, 600]");
  EXPECT_EQ(e.bytes, 0);
}

// Numbers and lists that torch refuses are no windows: the operator is told by its rule, or refused.
TEST(ExplainTest, WindowsThatAreNoneAreNotCountedAlong) {
  const Mesh mesh = parse_mesh("[a=2]");
  const auto along = [&](const char* op, std::vector<const char*> operands, const char* argument, Dims list) {
    OperatorCall call = call_of(op, mesh, operands);
    if (std::string(op).starts_with("avg")) call.arguments.emplace_back("kernel_size", Dims{2, 2});
    call.arguments.emplace_back(argument, std::move(list));
    try {
      return to_string(explain(call, mesh)).find("  along ") != std::string::npos;
    } catch (const std::invalid_argument&) {
      return false;
    }
  };
  const std::vector<const char*> row{"f32[2, 3, 8@a]", "f32[4, 3, 3]", "-"};
  const std::vector<const char*> plane{"f32[2, 3, 8@a, 8]"};
  EXPECT_TRUE(along("convolution", row, "stride", {2}));
  EXPECT_TRUE(along("avg_pool2d", plane, "stride", {2, 1}));
  for (const Dims& list : {Dims{0}, Dims{-1}, Dims{1, 1, 1}}) {
    EXPECT_FALSE(along("convolution", row, "stride", list));
    EXPECT_FALSE(along("convolution", row, "dilation", list));
    EXPECT_FALSE(along("avg_pool2d", plane, "stride", list));
  }
  EXPECT_FALSE(along("convolution", row, "padding", {-1}));
  EXPECT_FALSE(along("convolution", {"f32[2, 3, 8@a]", "f32[4, 3, 9]", "-"}, "stride", {1}));
  EXPECT_FALSE(along("convolution", {"f32[3@a]", "f32[3]", "-"}, "stride", {1}));
}

// Every operator of the tables, called with too few operands and too many: an explanation or a sentence, no crash.
TEST(ExplainTest, NoOperatorIsAskedForOperandsThatAreNotThere) {
  const Mesh mesh = parse_mesh("[a=2]");
  for (const std::string& op : rules::operators_with_rules()) {
    for (const char* text : {"f32[]", "f32[4@a]", "f32[4, 6@a]", "f32[4, 2, 6, 6@a]", "-"}) {
      for (size_t n = 0; n < 9; ++n) {
        OperatorCall call = call_of(op.c_str(), mesh, std::vector<const char*>(n, text));
        for (const char* argument : {"dims", "normalized_shape", "size", "shape"}) {
          call.arguments.emplace_back(argument, Dims{9, 3});
        }
        try {
          EXPECT_FALSE(to_string(explain(call, mesh)).empty());
        } catch (const std::invalid_argument&) {
        }
      }
    }
  }
}

}  // namespace
}  // namespace sherd
