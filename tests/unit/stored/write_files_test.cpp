// How many threads write a checkpoint anew.

#include "stored/write_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "stored/rewrite_within.h"

namespace sherd::stored {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

size_t at_most(size_t threads) { return std::min<size_t>(threads, std::max(1U, std::thread::hardware_concurrency())); }

TEST(WriteFilesTest, ThreadsTakeNoMoreThanTheMemoryThatIsThere) {
  EXPECT_EQ(threads_for(0, WriteOptions::kMemory), at_most(8));
  EXPECT_EQ(threads_for(76 * kMiB, WriteOptions::kMemory), at_most(2));  // 24 MiB are a thread's own
  EXPECT_EQ(threads_for(0, kBesideAModel), at_most(2));
  EXPECT_EQ(threads_for(1 * kMiB, kBesideAModel), 1U);
  EXPECT_EQ(threads_for(1000 * kMiB, kBesideAModel), 1U);  // somebody has to do it
}

}  // namespace
}  // namespace sherd::stored
