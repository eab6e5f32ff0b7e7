// Copies of bytes: every alignment, length and road gives what memcpy gives, and touches nothing beside it.

#include "comm/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace sherd::detail {
namespace {

std::vector<std::byte> noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> result(bytes);
  for (std::byte& b : result) b = static_cast<std::byte>(random());
  return result;
}

TEST(CopyTest, EqualsMemcpyForEveryAlignmentAndLength) {
  const std::vector<std::byte> source = noise(8192, 1);
  const std::vector<std::byte> before = noise(8192, 2);
  std::vector<size_t> lengths = {0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 65};
  for (const size_t around : {size_t{1024}, size_t{1088}, size_t{2048}, size_t{4096}, size_t{6000}}) {
    for (size_t n = around - 2; n <= around + 2; ++n) lengths.push_back(n);
  }
  for (const CopyTo where : {CopyTo::cache, CopyTo::memory, CopyTo::others}) {
    for (const size_t bytes : lengths) {
      for (size_t to = 0; to < 130; to += to < 66 ? 1 : 13) {
        for (const size_t from : {size_t{0}, size_t{1}, size_t{8}, size_t{33}, size_t{64}}) {
          std::vector<std::byte> got = before;
          std::vector<std::byte> wanted = before;
          copy_bytes(got.data() + to, source.data() + from, bytes, where);
          if (bytes > 0) std::memcpy(wanted.data() + to, source.data() + from, bytes);
          ASSERT_TRUE(got == wanted) << bytes << " bytes from " << from << " to " << to;
        }
      }
    }
  }
}

TEST(CopyTest, CopiesRunsThatLieApart) {
  for (const CopyTo where : {CopyTo::cache, CopyTo::memory, CopyTo::others}) {
    for (const size_t run : {1, 2, 4, 8, 12, 16, 32, 64, 100, 1024, 1500}) {
      for (const size_t count : {0, 1, 2, 5}) {
        for (const size_t gap : {0, 4, 61}) {
          const std::vector<std::byte> source = noise(count * (run + gap) + 1, 3);
          const std::vector<std::byte> before = noise(count * (run + 2 * gap) + 1, 4);
          std::vector<std::byte> got = before;
          std::vector<std::byte> wanted = before;
          copy_runs({.to = got.data(),
                     .to_step = static_cast<ptrdiff_t>(run + 2 * gap),
                     .from = source.data(),
                     .from_step = static_cast<ptrdiff_t>(run + gap),
                     .run = run,
                     .count = count},
                    where);
          for (size_t i = 0; i < count; ++i) {
            std::memcpy(wanted.data() + i * (run + 2 * gap), source.data() + i * (run + gap), run);
          }
          ASSERT_TRUE(got == wanted) << count << " runs of " << run << ", " << gap << " apart";
        }
      }
    }
  }
}

TEST(CopyTest, OnlyLargeResultsGoPastTheCaches) {
  EXPECT_EQ(best_for(1 << 20), CopyTo::cache);
  EXPECT_EQ(best_for(64 << 20), CopyTo::memory);
  EXPECT_EQ(best_for_gathered(1 << 20), CopyTo::cache);
  EXPECT_EQ(best_for_gathered(4 << 20), CopyTo::memory);
}

TEST(CopyTest, WhatOthersReadIsWrittenBySizeWhereRanksHaveCoresOfTheirOwn) {
  EXPECT_EQ(best_for_others(1, 4096), CopyTo::cache);
  EXPECT_EQ(best_for_others(1, 1 << 20), CopyTo::others);
  EXPECT_EQ(best_for_others(1, 64 << 20), CopyTo::memory);
  EXPECT_EQ(best_for_others(1 << 20, 1 << 20), CopyTo::cache);
  EXPECT_EQ(best_for_others(1 << 20, 64 << 20), CopyTo::cache);
}

}  // namespace
}  // namespace sherd::detail
