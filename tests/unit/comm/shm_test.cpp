// What shared memory is made of: segments, signals, processes.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/host.h"
#include "comm/settings.h"
#include "comm/shm_hub.h"
#include "comm/shm_segment.h"
#include "comm/shm_wait.h"
#include "comm/transports.h"

namespace sherd::detail {
namespace {

TEST(ShmSegmentTest, HasNoNameThatCouldBeLeftBehind) {
  for (const bool of_the_host : {true, false}) {
    const ShmSegment segment = of_the_host ? ShmSegment::create(8192) : ShmSegment::create_private(8192);
    struct stat status {};
    ASSERT_EQ(::fstat(segment.descriptor(), &status), 0);
    EXPECT_EQ(status.st_nlink, 0U);
  }
}

TEST(ShmSegmentTest, IsSharedByThoseWhoOpenIt) {
  const ShmSegment one = ShmSegment::create(8192);
  one.allocate(0, 8192);
  const ShmSegment two = ShmSegment::open(::getpid(), one.descriptor());
  ASSERT_EQ(two.size(), 8192U);
  EXPECT_NE(one.data(), two.data());
  one.data()[5000] = std::byte{7};
  EXPECT_EQ(two.data()[5000], std::byte{7});
}

TEST(ShmSegmentTest, MoreThanThereIsIsRefusedBeforeItIsUsed) {
  const size_t more = std::filesystem::space("/dev/shm").capacity + (size_t{1} << 20);
  const ShmSegment segment = ShmSegment::create(more);
  try {
    segment.allocate(0, more);
    ADD_FAILURE() << "no error";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::no_space_on_device) << error.what();
  }
}

TEST(ProcessIdTest, AProcessThatWasKilledIsNotAliveBeforeItsParentNotices) {
  EXPECT_TRUE(ProcessId::of(::getpid()).alive());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessId id = ProcessId::of(child);
  EXPECT_TRUE(id.alive());
  EXPECT_FALSE((ProcessId{child, id.start + 1}.alive())) << "a later process with the same number";
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(id.alive());
  ::waitpid(child, nullptr, 0);
}

TEST(ShmSignalTest, WakesTheOneWhoSleeps) {
  ShmSignal signal{};
  std::thread waiter([&] { wait_for(signal, 1, {}, [] {}); });
  while (signal.sleepers.load() == 0) std::this_thread::yield();
  signal.raise(1);
  waiter.join();
}

TEST(ShmSignalTest, MayPassItsLargestValue) {
  ShmSignal signal{};
  signal.value = 0xffffffffU;
  EXPECT_TRUE(signal.reached(0xfffffffeU));
  EXPECT_FALSE(signal.reached(1));
  signal.raise(1);
  EXPECT_TRUE(signal.reached(0xffffffffU));
  EXPECT_TRUE(signal.reached(1));
}

TEST(ShmSignalTest, WhoWaitsLooksAroundAndMayGiveUp) {
  ShmSignal signal{};
  int looks = 0;
  EXPECT_THROW(wait_for(signal, 1, Patience::of(2),
                        [&] {
                          if (++looks == 3) throw std::runtime_error("enough");
                        }),
               std::runtime_error);
  EXPECT_EQ(signal.sleepers.load(), 0U);
}

// With the least that SHERD_SHM_BYTES may be. Nobody writes to these segments, so they take no memory.
TEST(ShmHubTest, ARankHasRoomForEveryOtherHoweverManyThereAre) {
  constexpr size_t kLeast = 65536;
  for (const int ranks : {2, 3, 512, 513, 514, 1025}) {
    ShmMembers members{.ranks = std::vector<int64_t>(static_cast<size_t>(ranks))};
    const ShmHub hub(ShmSegment::create_private(ShmHub::bytes_of(ranks, kLeast)), std::move(members), kLeast);
    EXPECT_GE(ShmHub::area_of(ranks, kLeast), kLeast);
    for (const int slots : {ranks - 1, ranks}) {
      EXPECT_GE(hub.room(slots), 64U) << ranks << " ranks";
      EXPECT_LE(hub.room(slots) * static_cast<size_t>(slots), hub.room()) << ranks << " ranks";
    }
  }
  EXPECT_EQ(ShmHub::area_of(512, kLeast), kLeast) << "more is taken only where it is needed";
}

// A segment of another job behind the same process and descriptor is not taken for this group's.
TEST(ShmJoinTest, AStaleSegmentIsNeverAttached) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto set = [&](const std::string& key, const std::string& text) {
    store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  };
  const ShmSegment stale = ShmSegment::create(ShmHub::bytes_of(2, settings().shm_bytes));
  stale.allocate(0, 4096);
  set("shm/segment", std::to_string(::getpid()) + " " + std::to_string(stale.descriptor()) + " 12345");
  set("shm/ready/0", "ready");
  // Rank 1 alone: its word is what counts, Gloo then waits in vain for rank 0.
  EXPECT_ANY_THROW(
      make_shm({.store = store, .rank = 1, .size = 2, .timeout = std::chrono::milliseconds(300), .ranks = {0, 1}}));
  const std::vector<uint8_t> word = store->get("shm/ready/1");
  EXPECT_EQ(std::string(word.begin(), word.end()), "the segment is not the one of this group");
}

// Rank 0 had no memory for it.
TEST(ShmJoinTest, WhereThereIsNoSegmentEveryRankSaysSo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string none = "0 -1 0";
  store->set("shm/segment", std::vector<uint8_t>(none.begin(), none.end()));
  store->set("shm/ready/0", std::vector<uint8_t>{'n', 'o'});
  EXPECT_ANY_THROW(
      make_shm({.store = store, .rank = 1, .size = 2, .timeout = std::chrono::milliseconds(300), .ranks = {0, 1}}));
  const std::vector<uint8_t> word = store->get("shm/ready/1");
  EXPECT_EQ(std::string(word.begin(), word.end()), "there is no segment");
}

TEST(HostKeyTest, NamesTheNamespacesThatMustBeOne) {
  EXPECT_EQ(host_key(), host_key());
  EXPECT_NE(host_key().find("net:["), std::string::npos) << host_key();
  EXPECT_NE(host_key().find("pid:["), std::string::npos) << host_key();
}

}  // namespace
}  // namespace sherd::detail
