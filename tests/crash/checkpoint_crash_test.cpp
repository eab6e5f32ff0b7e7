// A machine that stops at any operation of a save leaves the checkpoint as it was or as it was to become, with one rank
// and with several; and a rank that fails leaves it as it was.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "crash/simulated_disk.h"
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

constexpr int64_t kRows = 10;
const std::string kPath = "/runs/ck";

void save_number(int ranks, const std::shared_ptr<Storage>& storage, double number) {
  spawn(ranks, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {ranks});
    const auto x = distribute_tensor(torch::full({kRows, 3}, number), mesh, {Shard(0)}, {.source = std::nullopt});
    save({{"x", x}, {"plain", torch::full({2}, number)}, {"number", number}}, kPath, {.storage = storage});
  });
}

// What a program that starts again finds: 0 where there is no checkpoint. A mixture fails the test.
double number_on(const std::shared_ptr<Storage>& storage) {
  if (!storage->exists(kPath)) return 0;
  const StateDict state = load_state_dict(kPath, {}, {.storage = storage});
  const double number = *state.at("number").number();
  EXPECT_TRUE(state.at("x").tensor()->equal(torch::full({kRows, 3}, number)));
  EXPECT_TRUE(state.at("plain").tensor()->equal(torch::full({2}, number)));
  return number;
}

class CheckpointCrashTest : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(CheckpointCrashTest, OldOrNew) {
  const auto [ranks, overwrites, can_exchange] = GetParam();
  int64_t stops = 0;
  for (int64_t count = 0;; ++count) {
    const auto disk = std::make_shared<SimulatedDisk>(can_exchange);
    if (overwrites) save_number(ranks, storage_on(disk), 1);
    disk->stop_after(count);
    bool finished = true;
    try {
      save_number(ranks, storage_on(disk), 2);
    } catch (const PowerLoss&) {
      finished = false;
    } catch (const std::exception&) {
      finished = false;
    }
    for (const Survivors survivors : {Survivors{Survivors::none}, Survivors{Survivors::all},
                                      Survivors{Survivors::some, 1}, Survivors{Survivors::some, 2}}) {
      const auto restarted = disk->after_restart(survivors);
      const double number = number_on(storage_on(restarted));
      EXPECT_TRUE(number == 2 || (!finished && number == (overwrites ? 1 : 0)))
          << "after " << count << " operations there is " << number;
      // The next save works, whatever was left lying about.
      if (count % 7 == 0) {
        save_number(ranks, storage_on(restarted), 3);
        EXPECT_EQ(number_on(storage_on(restarted)), 3);
        EXPECT_TRUE(storage_on(restarted)->drafts(kPath).empty());
      }
    }
    if (finished) break;
    ++stops;
  }
  EXPECT_GT(stops, 20);  // so many operations there are at least
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointCrashTest,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool(), ::testing::Bool()));

// A storage that fails on one rank alone.
class FailingStorage final : public Storage {
 public:
  explicit FailingStorage(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}
  std::unique_ptr<StoredFile> open(const std::string& path) const override { return storage_->open(path); }
  bool exists(const std::string& path) const override { return storage_->exists(path); }
  std::vector<std::string> list(const std::string& folder) const override { return storage_->list(folder); }
  void remove(const std::string& path) override { storage_->remove(path); }
  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    return std::make_unique<FailingDraft>(storage_->draft(folder, id));
  }
  std::vector<std::string> drafts(const std::string& folder) const override { return storage_->drafts(folder); }
  std::vector<DraftName> drafts_in(const std::string& folder) const override { return storage_->drafts_in(folder); }

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
  std::shared_ptr<Storage> storage_;
};

TEST(CheckpointFailureTest, OneRankCannotWriteAndAllSaySo) {
  const auto storage = memory_storage();
  save_number(3, storage, 1);
  spawn(3, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {3});
    const auto x = distribute_tensor(torch::full({kRows, 3}, 2.), mesh, {Shard(0)}, {.source = std::nullopt});
    const StateDict state{{"x", x}, {"plain", torch::full({2}, 2.)}, {"number", 2.}};
    const std::shared_ptr<Storage> own = world.rank() == 1 ? std::make_shared<FailingStorage>(storage) : storage;
    try {
      save(state, kPath, {.storage = own});
      ADD_FAILURE() << "rank " << world.rank() << " saved";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what_without_backtrace()).find("rank 1: create: no space left"), std::string::npos)
          << error.what_without_backtrace();
    }
    barrier(world.group());
    EXPECT_EQ(number_on(storage), 1);
    EXPECT_TRUE(storage->drafts(kPath).empty());
    barrier(world.group());
    // In the background the failure waits for whoever asks, or for the next save.
    save_async(state, kPath, {.storage = own});
    EXPECT_THROW(save_async(state, kPath, {.storage = storage}), c10::Error);
    save_async(state, kPath, {.storage = storage}).wait();
    EXPECT_EQ(number_on(storage), 2);
  });
}

}  // namespace
}  // namespace sherd::testing
