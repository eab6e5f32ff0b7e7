#include "checkpoint/shared_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <thread>

namespace sherd::detail {
namespace {

constexpr int64_t kBlocks = 100;

// Blocks hold their number.
void read_number(int32_t /*file*/, int64_t block, std::span<std::byte> into) {
  std::memcpy(into.data(), &block, sizeof block);
}

int64_t number_in(const std::byte* block) {
  int64_t number = 0;
  std::memcpy(&number, block, sizeof number);
  return number;
}

// A rank that takes its blocks one after the other.
class Rank {
 public:
  explicit Rank(std::vector<BlockRange> wanted) : wanted_(std::move(wanted)), offer_(blocks_.offer(wanted_)) {}
  const std::string& offer() const { return offer_; }
  void join(const std::vector<std::string>& offers, size_t rank,
            const std::function<void(int32_t, int64_t, std::span<std::byte>)>& read) {
    blocks_.join(offers, rank, 1,
                 {[this, read](int32_t file, int64_t block, std::span<std::byte> into) {
                    if (!expected.contains(block)) unexpected.push_back(block);
                    read(file, block, into);
                  },
                  [this](int32_t /*file*/, int64_t block) { expected.insert(block); }});
  }
  void take(int64_t count = kBlocks) {
    for (const BlockRange& range : wanted_) {
      for (int64_t block = range.begin; block < std::min(range.end, count); ++block) {
        blocks_.bring(range.file, block);
        const std::byte* bytes = blocks_.find(range.file, block);
        if (bytes == nullptr) {
          missing.push_back(block);
        } else if (number_in(bytes) != block) {
          wrong.push_back(block);
        }
      }
    }
    blocks_.leave();
  }

  std::vector<int64_t> missing;
  std::vector<int64_t> wrong;
  std::set<int64_t> expected;       // that the storage was told of
  std::vector<int64_t> unexpected;  // read all the same

 private:
  std::vector<BlockRange> wanted_;
  SharedBlocks blocks_;
  std::string offer_;
};

TEST(SharedBlocksTest, EachBlockIsReadByOneOfThoseWhoWantIt) {
  Rank a({{0, 0, kBlocks}});
  Rank b({{0, 0, kBlocks}});
  Rank c({{1, 0, kBlocks}});
  std::atomic<int> reads = 0;
  const auto read = [&](int32_t file, int64_t block, std::span<std::byte> into) {
    ++reads;
    read_number(file, block, into);
  };
  const std::vector<std::string> offers = {a.offer(), b.offer(), c.offer(), ""};
  a.join(offers, 0, read);
  b.join(offers, 1, read);
  c.join(offers, 2, read);
  {
    const std::jthread other([&] { b.take(); });
    a.take();
    c.take();
  }
  EXPECT_EQ(reads, kBlocks);
  for (const Rank* rank : {&a, &b}) {
    EXPECT_TRUE(rank->missing.empty());
    EXPECT_TRUE(rank->wrong.empty());
    EXPECT_TRUE(rank->unexpected.empty());
    EXPECT_EQ(rank->expected.size(), static_cast<size_t>(kBlocks) / 2) << "its own, and not those of the other";
  }
  EXPECT_EQ(c.missing.size(), static_cast<size_t>(kBlocks)) << "nobody shares what one rank wants";
}

TEST(SharedBlocksTest, ABlockThatCannotBeReadIsLeftToThoseWhoWantIt) {
  Rank a({{0, 0, kBlocks}});
  Rank b({{0, 0, kBlocks}});
  const auto read = [&](int32_t file, int64_t block, std::span<std::byte> into) {
    if (block == 50) throw std::runtime_error("damaged");
    read_number(file, block, into);
  };
  a.join({a.offer(), b.offer()}, 0, read);
  b.join({a.offer(), b.offer()}, 1, read);
  {
    const std::jthread other([&] { b.take(); });
    a.take();
  }
  EXPECT_EQ(a.missing, std::vector<int64_t>{50});
  EXPECT_EQ(b.missing, std::vector<int64_t>{50});
}

TEST(SharedBlocksTest, NobodyWaitsForARankThatHasLeft) {
  Rank a({{0, 0, kBlocks}});
  Rank b({{0, 0, kBlocks}});
  a.join({a.offer(), b.offer()}, 0, read_number);
  b.join({a.offer(), b.offer()}, 1, read_number);
  const auto begin = std::chrono::steady_clock::now();
  {
    const std::jthread other([&] { b.take(20); });
    a.take();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_TRUE(a.wrong.empty());
  EXPECT_FALSE(a.missing.empty());
  EXPECT_LT(a.missing.size(), static_cast<size_t>(kBlocks) / 2);
}

TEST(SharedBlocksTest, ARankThatNeverComesIsWaitedForOnce) {
  Rank a({{0, 0, kBlocks}});
  Rank b({{0, 0, kBlocks}});
  a.join({a.offer(), b.offer()}, 0, read_number);
  const auto begin = std::chrono::steady_clock::now();
  a.take();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(a.missing.size(), static_cast<size_t>(kBlocks));
}

}  // namespace
}  // namespace sherd::detail
