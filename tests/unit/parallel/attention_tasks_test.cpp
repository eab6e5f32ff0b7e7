// Which keys queries see: every pair that they may see is covered exactly once, no other pair is.

#include "parallel/attention_tasks.h"

#include <gtest/gtest.h>

#include <map>

namespace sherd::detail {
namespace {

std::vector<int64_t> positions(const std::vector<sherd::Run>& runs) {
  std::vector<int64_t> all;
  for (const sherd::Run& run : runs) {
    for (int64_t i = 0; i < run.size; ++i) all.push_back(run.offset + i);
  }
  return all;
}

void check(const std::vector<sherd::Run>& queries, const std::vector<sherd::Run>& keys, bool causal) {
  std::map<std::pair<int64_t, int64_t>, int> covered;
  for (const AttentionTask& task : attention_tasks(queries, keys, causal)) {
    ASSERT_GT(task.queries.size, 0);
    ASSERT_GT(task.keys.size, 0);
    if (task.triangle) {
      ASSERT_LE(task.keys.size, task.queries.size);
    }
    for (int64_t q = 0; q < task.queries.size; ++q) {
      for (int64_t k = 0; k < task.keys.size && (!task.triangle || k <= q); ++k) {
        ++covered[{task.queries.offset + q, task.keys.offset + k}];
      }
    }
  }
  const auto at_query = positions(queries), at_key = positions(keys);
  for (size_t q = 0; q < at_query.size(); ++q) {
    for (size_t k = 0; k < at_key.size(); ++k) {
      const int expected = !causal || at_key[k] <= at_query[q] ? 1 : 0;
      EXPECT_EQ((covered[{static_cast<int64_t>(q), static_cast<int64_t>(k)}]), expected) << q << " " << k;
    }
  }
}

TEST(AttentionTasksTest, EveryPairOnce) {
  const std::vector<std::vector<sherd::Run>> cuts = {
      {}, {{0, 4}}, {{4, 4}}, {{0, 2}, {6, 2}}, {{2, 2}, {4, 2}}, {{1, 3}, {5, 1}}, {{0, 1}, {3, 5}}, {{7, 1}}};
  for (const bool causal : {true, false}) {
    for (const auto& queries : cuts) {
      for (const auto& keys : cuts) check(queries, keys, causal);
    }
  }
}

TEST(AttentionTasksTest, KeysOfAnEarlierPlaceAreOneTask) {
  EXPECT_EQ(attention_tasks({{8, 4}}, {{0, 2}, {4, 2}}, true), (std::vector<AttentionTask>{{{0, 4}, {0, 4}, false}}));
  EXPECT_EQ(attention_tasks({{0, 4}}, {{4, 4}}, true), std::vector<AttentionTask>{});
  EXPECT_EQ(attention_tasks({{4, 4}}, {{4, 4}}, true), (std::vector<AttentionTask>{{{0, 4}, {0, 4}, true}}));
}

}  // namespace
}  // namespace sherd::detail
