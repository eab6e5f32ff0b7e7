// What the rules decide, read as text: tests/golden/*.case.

#include "plan/propagate.h"

#include <gtest/gtest.h>

#include <fstream>

#include "plan/redistribute.h"
#include "rules/registry.h"

namespace sherd {
namespace {

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(at); end != std::string::npos; end = text.find(at, begin)) {
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + at.size();
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

// "mm  A | B -> C ; bytes" with the part after the arrow computed.
std::string decide(const std::string& line, const Mesh& mesh) {
  const std::string left = split(line, "->")[0];
  const size_t space = left.find(' ');
  rules::OpCall call;
  call.op = "aten::" + left.substr(0, space);
  std::vector<plan::InputTensor> inputs;
  for (const std::string& text : split(left.substr(space), "|")) {
    const TensorText tensor = parse_tensor(text, mesh);
    call.tensors.push_back({tensor.shape, {}, true, static_cast<int>(inputs.size())});
    inputs.push_back({tensor.shape, 4, tensor.placements});
  }
  const auto rule = rules::find_rule(call);
  if (!rule) return "no rule";
  const auto choice = plan::propagate(*rule, mesh, inputs);
  Dims shape;
  for (const auto& dim : rule->outputs[0].dims) {
    int64_t size = 1;
    for (const int16_t factor : dim) size *= rule->factors[static_cast<size_t>(factor)].size;
    shape.push_back(size);
  }
  return to_string(TensorText{"f32", shape, choice->outputs[0]}, mesh) + " ; " +
         (choice->bytes == 0 ? "nothing" : plan::bytes_text(choice->bytes));
}

TEST(PropagateTest, DecidesAsTheGoldenSays) {
  std::ifstream file(std::string(SHERD_SOURCE_DIR) + "/tests/golden/contraction.case");
  ASSERT_TRUE(file);
  Mesh mesh;
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("mesh ")) {
      mesh = parse_mesh(line.substr(5));
      continue;
    }
    EXPECT_EQ(decide(line, mesh), split(line, "->")[1]) << line;
    ++cases;
  }
  EXPECT_GE(cases, 11);
}

TEST(PropagateTest, KeepsTheWrittenTensorsPlacementsOrSaysNo) {
  const Mesh mesh = parse_mesh("[a=2]");
  rules::OpCall call;
  call.op = "aten::relu_";
  call.tensors.push_back({{4, 4}, {}, true, 0});
  const auto rule = rules::find_rule(call);
  ASSERT_TRUE(rule);
  const Placements partial = {Partial()};
  EXPECT_FALSE(plan::propagate(*rule, mesh, {{{4, 4}, 4, partial}}, partial));
  const Placements shard = {Shard(1)};
  const auto kept = plan::propagate(*rule, mesh, {{{4, 4}, 4, shard}}, shard);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->outputs[0], shard);
}

TEST(RedistributionPlanTest, SaysWhatItDoes) {
  const Mesh mesh = parse_mesh("[dp=2, tp=4]");
  const auto text = [&](const char* from, const char* to) {
    return to_string(plan::plan_redistribution(mesh, {64, 32}, 4, parse_placements(from), parse_placements(to)), mesh);
  };
  EXPECT_EQ(text("(R, R)", "(R, R)"), "nothing to do");
  EXPECT_EQ(text("(R, R)", "(S(0), R)"), "slice@dp");
  EXPECT_EQ(text("(R, S(0))", "(R, R)"), "exchange@tp 6.0 KiB");
  EXPECT_EQ(text("(R, P(sum))", "(R, R)"),
            "all_reduce@tp 12.0 KiB; 2.0 KiB more than the fewest, for 6 messages instead of 7");
  EXPECT_EQ(text("(R, P(sum))", "(R, S(1))"),
            "reduce_scatter@tp 6.0 KiB; 2.0 KiB more than the fewest, for 3 messages instead of 4");
  EXPECT_EQ(text("(R, R)", "(R, P(sum))"), "keep_one@tp");
}

}  // namespace
}  // namespace sherd
