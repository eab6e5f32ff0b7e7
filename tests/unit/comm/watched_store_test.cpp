#include "comm/watched_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace sherd::detail {
namespace {

using std::chrono::milliseconds;

// Counts waits that are too short for anybody to come: torch warns of each.
class CountingStore final : public c10d::HashStore {
 public:
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    ++waits;
    HashStore::wait(keys, timeout);
  }
  std::atomic<int> waits{0};
};

std::shared_ptr<const Link> link_by(const c10::intrusive_ptr<CountingStore>& store) {
  Link link;
  link.size = 2;
  link.store = store;
  return std::make_shared<const Link>(std::move(link));
}

TEST(WatchedStoreTest, ALateRankIsWaitedForWithoutWaitsThatFail) {
  const auto store = c10::make_intrusive<CountingStore>();
  WatchedStore watched("group", link_by(store));
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(1200));
    WatchedStore("group", link_by(store)).set("here", std::vector<uint8_t>{1});
  });
  watched.wait({"here"}, milliseconds(20'000));
  late.join();
  EXPECT_EQ(store->waits, 0);
  EXPECT_EQ(watched.get("here"), (std::vector<uint8_t>{1}));
}

TEST(WatchedStoreTest, AWaitEndsWithItsTimeout) {
  const auto store = c10::make_intrusive<CountingStore>();
  WatchedStore watched("group", link_by(store));
  EXPECT_ANY_THROW(watched.wait({"here"}, milliseconds(30)));
}

// Also where it is the one that waits: in another thread.
TEST(WatchedStoreTest, AWaitEndsWhereARankFails) {
  for (const int rank : {0, 1}) {
    const auto store = c10::make_intrusive<CountingStore>();
    Link failing;
    failing.rank = rank;
    failing.store = store;
    failing.post_failure("no licence");
    WatchedStore watched("group", link_by(store));
    try {
      watched.wait({"here"}, milliseconds(20'000));
      ADD_FAILURE() << "nobody came";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "rank " + std::to_string(rank) + " failed");
    }
  }
}

}  // namespace
}  // namespace sherd::detail
