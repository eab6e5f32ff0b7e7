// Local shapes, offsets and rows against PyTorch 2.13's own, which tests/python/layout_oracle.py has written down.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "sherd/layout.h"

namespace sherd {
namespace {

// "0:3,6:7", or "-" for none.
std::string runs_text(const std::vector<Run>& runs) {
  std::string text;
  for (const auto& run : runs)
    text += (text.empty() ? "" : ",") + std::to_string(run.offset) + ":" + std::to_string(run.offset + run.size);
  return text.empty() ? "-" : text;
}

// Cuts "[2, 3] [4] rest" after the next ']' or, for what is no list, before the next space.
std::string take(std::string& line) {
  line.erase(0, line.find_first_not_of(' '));
  const size_t end = line.front() == '[' ? line.find(']') + 1 : std::min(line.find(' '), line.size());
  std::string word = line.substr(0, end);
  line.erase(0, end);
  return word;
}

TEST(LayoutTorch, AgreesWithPyTorchOnEveryRecordedCase) {
  std::ifstream golden(SHERD_SOURCE_DIR "/tests/golden/layout_torch.txt");
  ASSERT_TRUE(golden) << "tests/golden/layout_torch.txt is missing";
  Layout layout;
  int64_t cases = 0, ranks = 0;
  for (std::string line; std::getline(golden, line);) {
    if (line.starts_with("#")) continue;
    SCOPED_TRACE(line);
    if (!line.starts_with(" ")) {
      layout.mesh = parse_mesh(take(line));
      layout.shape = parse_dims(take(line));
      layout.placements = checked_placements("test", layout.mesh, layout.shape, parse_placements(line));
      ++cases;
      continue;
    }
    const Dims coordinate = parse_dims(take(line));
    ASSERT_EQ(to_string(local_shape(layout, coordinate)), take(line)) << to_string(layout.placements);
    ASSERT_EQ(to_string(local_offset(layout, coordinate)), take(line)) << to_string(layout.placements);
    for (size_t d = 0; d < layout.shape.size(); ++d)
      ASSERT_EQ(runs_text(local_runs(layout, static_cast<int64_t>(d), coordinate)), take(line));
    ++ranks;
  }
  EXPECT_EQ(cases, 400);
  EXPECT_GT(ranks, 3000);
}

}  // namespace
}  // namespace sherd
