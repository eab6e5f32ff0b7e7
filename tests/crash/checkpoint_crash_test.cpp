// A machine that stops at any operation of a save, in any way to save, leaves the checkpoint as it was or as it was to
// become, with one rank and with several; and a rank that fails leaves it as it was.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "crash/passing_storage.h"
#include "crash/simulated_disk.h"
#include "crash/ways_to_save.h"
#include "sherd/sherd.h"
#include "storage/disk.h"

namespace sherd::testing {
namespace {

// Rank threads share one disk.
class SharedDisk final : public Posix {
  template <class F>
  auto one(const F& call) {
    const std::lock_guard lock(mutex_);
    return call();
  }

 public:
  explicit SharedDisk(std::shared_ptr<SimulatedDisk> disk) : disk_(std::move(disk)) {}

  int open(const std::string& path, int flags) override {
    return one([&] { return disk_->open(path, flags); });
  }
  void close(int file) override {
    one([&] {
      disk_->close(file);
      return 0;
    });
  }
  int64_t size(int file) override {
    return one([&] { return disk_->size(file); });
  }
  ssize_t pread(int file, std::span<std::byte> into, int64_t offset) override {
    return one([&] { return disk_->pread(file, into, offset); });
  }
  int start_reading(int file, int64_t offset, int64_t size) override {
    return one([&] { return disk_->start_reading(file, offset, size); });
  }
  ssize_t pwrite(int file, std::span<const std::byte> bytes, int64_t offset) override {
    return one([&] { return disk_->pwrite(file, bytes, offset); });
  }
  int reserve(int file, int64_t size) override {
    return one([&] { return disk_->reserve(file, size); });
  }
  int truncate(int file, int64_t size) override {
    return one([&] { return disk_->truncate(file, size); });
  }
  int start_writing(int file) override {
    return one([&] { return disk_->start_writing(file); });
  }
  int fsync(int file) override {
    return one([&] { return disk_->fsync(file); });
  }
  int kind(const std::string& path, PathKind& kind) override {
    return one([&] { return disk_->kind(path, kind); });
  }
  int list(const std::string& folder, std::vector<FolderEntry>& entries) override {
    return one([&] { return disk_->list(folder, entries); });
  }
  int read_link(const std::string& path, std::string& target) override {
    return one([&] { return disk_->read_link(path, target); });
  }
  int mkdir(const std::string& path) override {
    return one([&] { return disk_->mkdir(path); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return one([&] { return disk_->rename(from, to); });
  }
  int exchange(const std::string& a, const std::string& b) override {
    return one([&] { return disk_->exchange(a, b); });
  }
  int unlink(const std::string& path) override {
    return one([&] { return disk_->unlink(path); });
  }
  int rmdir(const std::string& path) override {
    return one([&] { return disk_->rmdir(path); });
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<SimulatedDisk> disk_;
};

std::shared_ptr<Storage> storage_on(const std::shared_ptr<SimulatedDisk>& disk) {
  return disk_storage(Disk{.posix = std::make_shared<SharedDisk>(disk), .options = {.io_uring = false}});
}

class CheckpointCrashTest : public ::testing::TestWithParam<std::tuple<WayToSave, int, bool, bool>> {};

// Stops after every number of operations, and looks at what is left.
TEST_P(CheckpointCrashTest, OldOrNew) {
  const auto& [way, ranks, overwrites, can_exchange] = GetParam();
  const int before = overwrites ? way.before : 0;
  const auto start = std::make_shared<SimulatedDisk>(can_exchange);
  for (int number = 1; number <= before; ++number) way.save(storage_on(start), ranks, number);
  int64_t stops = 0;
  for (int64_t count = 0; !HasFailure(); ++count) {
    SCOPED_TRACE(count);
    const auto disk = start->after_restart({Survivors::all});
    disk->stop_after(count);
    bool finished = true;
    try {
      way.save(storage_on(disk), ranks, before + 1);
    } catch (const PowerLoss&) {
      finished = false;
    } catch (const std::exception&) {
      finished = false;
    }
    for (const Survivors survivors : {Survivors{Survivors::none}, Survivors{Survivors::all},
                                      Survivors{Survivors::some, static_cast<unsigned>(count)}}) {
      const auto restarted = disk->after_restart(survivors);
      const double number = way.found(storage_on(restarted));
      EXPECT_TRUE(number == before + 1 || (!finished && number == before)) << "there is " << number;
      // The next save works, whatever was left lying about, and clears it away.
      if (count % 7 != 0) continue;
      way.save(storage_on(restarted), ranks, before + 2);
      EXPECT_EQ(way.found(storage_on(restarted)), before + 2);
      expect_no_leftovers(way, storage_on(restarted));
    }
    if (finished) break;
    ++stops;
  }
  EXPECT_GT(stops, 20);  // so many operations there are at least
}

std::string case_name(const ::testing::TestParamInfo<CheckpointCrashTest::ParamType>& info) {
  const auto& [way, ranks, overwrites, can_exchange] = info.param;
  return way.name + (overwrites ? "Over" : "First") + "By" + std::to_string(ranks) +
         (can_exchange ? "Exchanging" : "Renaming");
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointCrashTest,
                         ::testing::Combine(::testing::ValuesIn(ways_to_save()), ::testing::Values(1, 2),
                                            ::testing::Bool(), ::testing::Bool()),
                         case_name);

// Over others only: the first of a run is saved as any other is.
INSTANTIATE_TEST_SUITE_P(Runs, CheckpointCrashTest,
                         ::testing::Combine(::testing::ValuesIn(ways_to_run()), ::testing::Values(1, 2),
                                            ::testing::Values(true), ::testing::Bool()),
                         case_name);

// A storage that fails on one rank alone.
class FailingStorage final : public PassingStorage {
 public:
  using PassingStorage::PassingStorage;
  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    return std::make_unique<FailingDraft>(PassingStorage::draft(folder, id));
  }

 private:
  class FailingDraft final : public Draft {
   public:
    explicit FailingDraft(std::unique_ptr<Draft> draft) : draft_(std::move(draft)) {}
    std::unique_ptr<FileWriter> create(const std::string&, int64_t) override {
      throw std::runtime_error("create: no space left");
    }
    bool has(const std::string& name) const override { return draft_->has(name); }
    void commit(const std::string& last) override { draft_->commit(last); }
    void discard() noexcept override { draft_->discard(); }

   private:
    std::unique_ptr<Draft> draft_;
  };
};

TEST(CheckpointFailureTest, OneRankCannotWriteAndAllSaySo) {
  const auto storage = memory_storage();
  spawn(3, [&](World&) { save(state_of(1, 3), kPath, {.storage = storage}); });
  spawn(3, [&](World& world) {
    const StateDict state = state_of(2, 3);
    const std::shared_ptr<Storage> own = world.rank() == 1 ? std::make_shared<FailingStorage>(storage) : storage;
    try {
      save(state, kPath, {.storage = own});
      ADD_FAILURE() << "rank " << world.rank() << " saved";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what_without_backtrace()).find("rank 1: create: no space left"), std::string::npos)
          << error.what_without_backtrace();
    }
    barrier(world.group());
    EXPECT_EQ(number_at(storage, kPath), 1);
    EXPECT_TRUE(storage->drafts(kPath).empty());
    barrier(world.group());
    // In the background the failure waits for whoever asks, or for the next save.
    save_async(state, kPath, {.storage = own});
    EXPECT_THROW(save_async(state, kPath, {.storage = storage}), c10::Error);
    save_async(state, kPath, {.storage = storage}).wait();
    EXPECT_EQ(number_at(storage, kPath), 2);
  });
}

}  // namespace
}  // namespace sherd::testing
