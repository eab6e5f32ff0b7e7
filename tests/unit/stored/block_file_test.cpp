// What a file of a checkpoint is asked for: how much at a time, by whom, and what is said beforehand.

#include "stored/block_file.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

namespace sherd::stored {
namespace {

using format::kBlock;

const std::string kReader = "tensor w";

std::string some_bytes(int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

struct Call {
  size_t requests;
  int64_t bytes;
};

// Remembers what it was asked for. With `readers`, a call waits until so many threads have called.
class WatchedFile final : public StoredFile {
 public:
  explicit WatchedFile(std::string bytes, size_t readers = 1) : bytes_(std::move(bytes)), readers_(readers) {}

  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read(std::span<const ReadRequest> requests) const override {
    std::unique_lock lock(mutex_);
    Call call{requests.size(), 0};
    for (const ReadRequest& request : requests) {
      std::memcpy(request.into.data(), bytes_.data() + request.offset, request.into.size());
      call.bytes += static_cast<int64_t>(request.into.size());
    }
    calls.push_back(call);
    threads.insert(std::this_thread::get_id());
    came_.notify_all();
    came_.wait_for(lock, std::chrono::seconds(20), [&] { return threads.size() >= readers_; });
  }
  void expect(int64_t offset, int64_t size) const noexcept override { expected.push_back({offset, size, nullptr}); }

  mutable std::vector<Call> calls;
  mutable std::set<std::thread::id> threads;
  mutable std::vector<FileRun> expected;

 private:
  std::string bytes_;
  size_t readers_;
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
};

// Runs of a file that is as large as they need, and what is in them.
struct Wish {
  std::vector<FileRun> runs;
  std::vector<std::string> parts;
  std::string bytes;

  Wish(int64_t count, int64_t size, int64_t stride)
      : parts(static_cast<size_t>(count), std::string(static_cast<size_t>(size), '?')),
        bytes(some_bytes((count - 1) * stride + size)) {
    for (int64_t i = 0; i < count; ++i) {
      runs.push_back({i * stride, size, reinterpret_cast<std::byte*>(parts[static_cast<size_t>(i)].data())});
    }
  }
  bool is_there() const {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (bytes.compare(static_cast<size_t>(runs[i].offset), parts[i].size(), parts[i]) != 0) return false;
    }
    return true;
  }
};

TEST(BlockFileTest, ScatteredRangesWithoutDigestsAreAskedForAtOnceAndToldOfBefore) {
  Wish wish(100, 500, 40'000);
  const auto watched = std::make_shared<WatchedFile>(wish.bytes);
  const OpenOptions options;
  BlockFile file("w", watched, nullptr, options);
  for (const FileRun& run : wish.runs) file.want(run, kReader);
  EXPECT_TRUE(watched->calls.empty());
  file.expect_wanted();
  EXPECT_EQ(watched->expected.size(), 100U);
  file.read_wanted();
  EXPECT_TRUE(wish.is_there());
  ASSERT_EQ(watched->calls.size(), 1U);
  EXPECT_EQ(watched->calls[0].requests, 100U);
  EXPECT_EQ(watched->calls[0].bytes, 50'000);
}

TEST(BlockFileTest, RangesNearEachOtherWithoutDigestsAreOne) {
  Wish wish(100, 500, 1'000);
  const auto watched = std::make_shared<WatchedFile>(wish.bytes);
  const OpenOptions options;
  BlockFile file("w", watched, nullptr, options);
  // In any order.
  for (size_t i = wish.runs.size(); i-- > 0;) file.want(wish.runs[i], kReader);
  file.read_wanted();
  EXPECT_TRUE(wish.is_there());
  ASSERT_EQ(watched->calls.size(), 1U);
  EXPECT_EQ(watched->calls[0].requests, 1U);
  EXPECT_EQ(watched->calls[0].bytes, 99'500);
}

TEST(BlockFileTest, LargeRangesWithoutDigestsAreReadByThreadsAndTheirCrcsAreThoseOfTheWhole) {
  Wish wish(2, 5 * kBlock + 1234, 6 * kBlock);
  const auto watched = std::make_shared<WatchedFile>(wish.bytes, 3);
  const OpenOptions options{.threads = 3};
  BlockFile file("w", watched, nullptr, options);
  std::vector<uint32_t> crcs(2);
  std::string small(10, '?');
  uint32_t small_crc = 0;
  file.want(wish.runs[0], kReader, &crcs[0]);
  file.want(wish.runs[1], kReader, &crcs[1]);
  file.want({17, 10, reinterpret_cast<std::byte*>(small.data())}, kReader, &small_crc);
  file.read_wanted();
  EXPECT_TRUE(wish.is_there());
  EXPECT_EQ(watched->threads.size(), 3U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(crcs[i], format::crc32(std::as_bytes(std::span(wish.parts[i]))));
  EXPECT_EQ(small, wish.bytes.substr(17, 10));
  EXPECT_EQ(small_crc, format::crc32(std::as_bytes(std::span(small))));
}

TEST(BlockFileTest, MemoryBesideIsABlockForRangesNearEachOtherAndALittleMoreForScatteredOnes) {
  for (const auto& [wish_of, most] : {std::pair(std::array<int64_t, 3>{1500, 300, 12'000}, kBlock),
                                      std::pair(std::array<int64_t, 3>{200, 60'000, 80'000}, int64_t{8} << 20)}) {
    Wish wish(wish_of[0], wish_of[1], wish_of[2]);
    const auto watched = std::make_shared<WatchedFile>(wish.bytes);
    const OpenOptions options;
    BlockFile file("w", watched, nullptr, options);
    for (const FileRun& run : wish.runs) file.want(run, kReader);
    file.read_wanted();
    EXPECT_TRUE(wish.is_there());
    EXPECT_GT(watched->calls.size(), 1U);
    for (const Call& call : watched->calls) EXPECT_LE(call.bytes, most);
  }
}

// Small items that lie one after the other, as a load takes them: a head first, then the elements.
TEST(BlockFileTest, ABlockWithDigestsIsReadOnceForSmallItemsThatCrossItsEnd) {
  const Wish all(1, 3 * kBlock, 0);
  const auto watched = std::make_shared<WatchedFile>(all.bytes);
  format::BlockDigests digests;
  digests.add(std::as_bytes(std::span(all.bytes)));
  format::ManifestFile told;
  told.length = 3 * kBlock;
  told.blocks = digests.finish();
  const OpenOptions options;
  BlockFile file("w", watched, &told, options);
  std::string found(all.bytes.size(), '?');
  const int64_t size = 3'000;  // of an item, of which 1,000 are the head
  for (int64_t at = 0; at + size <= told.length; at += size) {
    auto* const into = reinterpret_cast<std::byte*>(found.data()) + at;
    file.read_ahead({at, 1'000, into}, kReader);
    file.want({at + 1'000, size - 1'000, into + 1'000}, kReader);
  }
  file.read_wanted();
  const auto items = static_cast<size_t>(told.length / size * size);
  EXPECT_EQ(found.substr(0, items), all.bytes.substr(0, items));
  EXPECT_EQ(file.bytes_read(), 3 * kBlock);
}

TEST(BlockFileTest, BlocksWithDigestsAreToldOfWhole) {
  const Wish all(1, 5 * kBlock, 0);
  const auto watched = std::make_shared<WatchedFile>(all.bytes);
  format::BlockDigests digests;
  digests.add(std::as_bytes(std::span(all.bytes)));
  format::ManifestFile told;
  told.length = 5 * kBlock;
  told.blocks = digests.finish();
  const OpenOptions options;
  BlockFile file("w", watched, &told, options);
  std::string found(200'000, '?');
  auto* const into = reinterpret_cast<std::byte*>(found.data());
  file.want({kBlock + 7, 100'000, into}, kReader);
  file.want({4 * kBlock - 50'000, 100'000, into + 100'000}, kReader);
  file.expect_wanted();
  ASSERT_EQ(watched->expected.size(), 2U);
  EXPECT_EQ(watched->expected[0].offset, kBlock);
  EXPECT_EQ(watched->expected[0].size, kBlock);
  EXPECT_EQ(watched->expected[1].offset, 3 * kBlock);
  EXPECT_EQ(watched->expected[1].size, 2 * kBlock);
  file.read_wanted();
  EXPECT_EQ(found, all.bytes.substr(kBlock + 7, 100'000) + all.bytes.substr(4 * kBlock - 50'000, 100'000));
}

}  // namespace
}  // namespace sherd::stored
