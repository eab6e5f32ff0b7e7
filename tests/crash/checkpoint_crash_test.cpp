// A machine that stops at any operation of a save, in any way to save, leaves the checkpoint as it was or as it was to
// become, with one rank and with several; and a rank that fails leaves it as it was.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "crash/passing_storage.h"
#include "crash/simulated_disk.h"
#include "sherd/convert.h"
#include "sherd/sherd.h"
#include "storage/disk.h"
#include "stored/retention.h"

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
const std::string kFolder = "/runs";
const std::string kPath = kFolder + "/ck";

StateDict state_of(double number, int ranks) {
  const auto mesh = init_device_mesh("cpu", {ranks});
  const auto x = distribute_tensor(torch::full({kRows, 3}, number), mesh, {Shard(0)}, {.source = std::nullopt});
  return {{"x", x}, {"plain", torch::full({2}, number)}, {"number", number}};
}

// The same with a block that never changes, and is found in a base.
StateDict large_state_of(double number, int ranks) {
  StateDict state{{"constant", torch::ones({(int64_t{1} << 18) + 10})}};  // the first in its file
  for (const auto& [key, value] : state_of(number, ranks)) state[key] = value;
  return state;
}

// What is saved there. A mixture fails the test.
double number_at(const std::shared_ptr<Storage>& storage, const std::string& path) {
  const StateDict state = load_state_dict(path, {}, {.storage = storage});
  const double number = *state.at("number").number();
  EXPECT_TRUE(state.at("x").tensor()->equal(torch::full({kRows, 3}, number)));
  EXPECT_TRUE(state.at("plain").tensor()->equal(torch::full({2}, number)));
  if (state.contains("constant")) {
    EXPECT_TRUE(state.at("constant").tensor()->eq(1).all().item<bool>());
  }
  return number;
}

// 0 where there is none.
double number_or_none(const std::shared_ptr<Storage>& storage, const std::string& path) {
  return storage->exists(path) ? number_at(storage, path) : 0;
}

using StoragePointer = std::shared_ptr<Storage>;

// A way to save. What a program does that starts, saves and ends: it saves a number; and what one that starts after a
// crash finds: the number, 0 where there is nothing. Everything that is there must be whole.
struct WayToSave {
  std::string name;
  std::function<void(const StoragePointer&, int ranks, double number)> save;
  std::function<double(const StoragePointer&)> found;
  int before = 1;  // so many saves come before the one that is stopped, where it is to be no first one
};

WayToSave into(const std::string& name, const std::string& path, const SaveOptions& options = {}) {
  const auto save_number = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) {
      SaveOptions with = options;
      with.storage = storage;
      save(state_of(number, ranks), path, with);
    });
  };
  return {name, save_number, [=](const StoragePointer& storage) { return number_or_none(storage, path); }};
}

WayToSave in_background() {
  WayToSave way = into("Async", kPath);
  way.save = [](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) { save_async(state_of(number, ranks), kPath, {.storage = storage}).wait(); });
  };
  return way;
}

WayToSave on_a_base() {
  const std::string base = kFolder + "/base";
  WayToSave way = into("Incremental", kPath);
  way.save = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World& world) {
      if (number_or_none(storage, base) == 0) save(large_state_of(100, ranks), base, {.storage = storage});
      barrier(world.group());
      const auto result = save(large_state_of(number, ranks), kPath, {.storage = storage, .base = base});
      EXPECT_GT(result.bytes_in_base, 0);
    });
  };
  way.found = [=](const StoragePointer& storage) {
    const double number = number_or_none(storage, kPath);
    EXPECT_TRUE(number == 0 || number_at(storage, base) == 100);
    return number;
  };
  return way;
}

// Written by ranks into one folder, and from there into another by a conversion.
WayToSave converted(const std::string& name, const std::string& path, CheckpointFormat format) {
  const std::string source = kFolder + "/source";
  WayToSave way = into(name, path);
  way.save = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World& world) {
      save(state_of(number, ranks), source, {.storage = storage});
      if (world.rank() == 0) {
        rewrite_checkpoint({source}, path,
                           {.format = format, .overwrite = true, .from_storage = storage, .to_storage = storage});
      }
    });
  };
  return way;
}

// A run that goes on: it looks for the newest, saves the next step, and removes old ones.
CheckpointManager run_in(const StoragePointer& storage, StateDict& state) {
  CheckpointManager checkpoints(kFolder, {.keep_last = 2, .incremental = true, .storage = storage});
  checkpoints.load_latest(state);
  EXPECT_TRUE(checkpoints.warnings().empty());
  return checkpoints;
}

// The number is the step. The first one stays, since the others stand on it.
WayToSave managed(bool async) {
  const auto save_number = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) {
      StateDict state = large_state_of(0, ranks);
      CheckpointManager checkpoints = run_in(storage, state);
      state = large_state_of(number, ranks);
      if (async) {
        checkpoints.save_async(static_cast<int64_t>(number), state);
        checkpoints.wait();
      } else {
        checkpoints.save(static_cast<int64_t>(number), state);
      }
    });
  };
  const auto found = [](const StoragePointer& storage) {
    const std::vector<int64_t> steps = stored::steps_in(*storage, kFolder);
    for (const int64_t step : steps) {
      EXPECT_EQ(number_at(storage, kFolder + "/" + stored::step_name(step)), static_cast<double>(step));
    }
    return steps.empty() ? 0. : static_cast<double>(steps.back());
  };
  return {async ? "ManagedAsync" : "Managed", save_number, found, 3};
}

// One step is saved again and again; the first time two that stand on it and on each other are saved, too.
WayToSave managed_again() {
  const auto save_number = [](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) {
      StateDict state = large_state_of(0, ranks);
      CheckpointManager checkpoints = run_in(storage, state);
      checkpoints.save(10, large_state_of(number, ranks));
      if (number == 1) {
        for (const int64_t step : {20, 30}) {
          checkpoints.save(step, large_state_of(static_cast<double>(step), ranks));
        }
      }
    });
  };
  const auto found = [](const StoragePointer& storage) {
    for (const int64_t step : {20, 30}) {
      const double number = number_or_none(storage, kFolder + "/" + stored::step_name(step));
      EXPECT_TRUE(number == 0 || number == static_cast<double>(step));
    }
    return number_or_none(storage, kFolder + "/step-10");
  };
  return {"ManagedAgain", save_number, found};
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
      EXPECT_TRUE(storage_on(restarted)->drafts_in(kFolder).empty());
      EXPECT_TRUE(stored::parts_in(*storage_on(restarted), kFolder).empty());
    }
    if (finished) break;
    ++stops;
  }
  EXPECT_GT(stops, 20);  // so many operations there are at least
}

const auto kWays = ::testing::Values(
    into("Folder", kPath), into("TorchFile", kPath + ".pt"), into("SafetensorsFile", kPath + ".safetensors"),
    into("SafetensorsFolder", kPath, {.format = CheckpointFormat::safetensors}),
    into("Compressed", kPath, {.compress = true}), converted("ConvertedFolder", kPath, CheckpointFormat::dcp),
    converted("ConvertedTorchFile", kPath + ".pt", CheckpointFormat::torch_save),
    converted("ConvertedSafetensors", kPath, CheckpointFormat::safetensors), in_background(), on_a_base());

std::string case_name(const ::testing::TestParamInfo<CheckpointCrashTest::ParamType>& info) {
  const auto& [way, ranks, overwrites, can_exchange] = info.param;
  return way.name + (overwrites ? "Over" : "First") + "By" + std::to_string(ranks) +
         (can_exchange ? "Exchanging" : "Renaming");
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointCrashTest,
                         ::testing::Combine(kWays, ::testing::Values(1, 2), ::testing::Bool(), ::testing::Bool()),
                         case_name);

// Over others only: the first of a run is saved as any other is.
INSTANTIATE_TEST_SUITE_P(Runs, CheckpointCrashTest,
                         ::testing::Combine(::testing::Values(managed(false), managed(true), managed_again()),
                                            ::testing::Values(1, 2), ::testing::Values(true), ::testing::Bool()),
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
