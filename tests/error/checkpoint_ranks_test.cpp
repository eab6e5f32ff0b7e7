// Ranks that save together while one of them is slow, fails or sees other files: all end alike, and nothing stays.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "crash/faulty_posix.h"
#include "sherd/sherd.h"
#include "storage/disk.h"

namespace sherd::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kTimeout{1000};
const std::string kPath = "runs/ck";

// What a rank meets on its way to its files.
struct Meets {
  std::function<void(const std::string& name)> at_file = [](const std::string&) {};
  std::function<void()> at_commit = [] {};
  std::function<void(const std::string& path)> at_open = [](const std::string&) {};
};

class StorageThatMeets final : public Storage {
 public:
  StorageThatMeets(std::shared_ptr<Storage> storage, Meets meets)
      : storage_(std::move(storage)), meets_(std::move(meets)) {}
  std::unique_ptr<StoredFile> open(const std::string& path) const override {
    meets_.at_open(path);
    return storage_->open(path);
  }
  bool exists(const std::string& path) const override { return storage_->exists(path); }
  std::vector<std::string> list(const std::string& folder) const override { return storage_->list(folder); }
  void remove(const std::string& path) override { storage_->remove(path); }
  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    return std::make_unique<DraftThatMeets>(storage_->draft(folder, id), meets_);
  }
  std::vector<std::string> drafts(const std::string& folder) const override { return storage_->drafts(folder); }
  std::vector<DraftName> drafts_in(const std::string& folder) const override { return storage_->drafts_in(folder); }

 private:
  class DraftThatMeets final : public Draft {
   public:
    DraftThatMeets(std::unique_ptr<Draft> draft, Meets meets) : draft_(std::move(draft)), meets_(std::move(meets)) {}
    std::unique_ptr<FileWriter> create(const std::string& name, int64_t size) override {
      meets_.at_file(name);
      return draft_->create(name, size);
    }
    bool has(const std::string& name) const override { return draft_->has(name); }
    void commit(const std::string& last) override {
      meets_.at_commit();
      draft_->commit(last);
    }
    void discard() noexcept override { draft_->discard(); }

   private:
    std::unique_ptr<Draft> draft_;
    Meets meets_;
  };
  std::shared_ptr<Storage> storage_;
  Meets meets_;
};

void sleep_long() { std::this_thread::sleep_for(kTimeout * 5 / 2); }

[[noreturn]] void disk_is_full() { throw std::runtime_error("create: no space left"); }

// 30 rows of the number on every rank of the world.
StateDict state_of(double number, int64_t rows = 30) {
  const auto mesh = init_device_mesh("cpu", {current_world().size()});
  return {{"x", full({rows}, number, mesh, {Shard(0)})}, {"number", number}};
}

double number_in(const std::shared_ptr<Storage>& storage, const std::string& path = kPath) {
  const StateDict state = load_state_dict(path, {}, {.storage = storage});
  const double number = *state.at("number").number();
  EXPECT_TRUE(state.at("x").tensor()->eq(number).all().item<bool>());
  return number;
}

enum class Kind { none, value_error, error };

struct Ended {
  Kind kind = Kind::none;
  std::string text = {};
  bool operator==(const Ended&) const = default;
};

void PrintTo(const Ended& end, std::ostream* out) { *out << static_cast<int>(end.kind) << ": " << end.text; }

Ended how_it_ends(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const c10::ValueError& error) {
    return {Kind::value_error, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    return {Kind::error, error.what_without_backtrace()};
  }
}

// How a call ended on each of so many ranks.
std::vector<Ended> on_ranks(int ranks, const std::function<void(World&)>& call) {
  std::vector<Ended> all(static_cast<size_t>(ranks));
  spawn(ranks,
        [&](World& world) {
          all[static_cast<size_t>(world.rank())] = how_it_ends([&] { call(world); });
          barrier(world.group());
        },
        {.timeout = kTimeout});
  return all;
}

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class SlowRankTest : public ::testing::TestWithParam<const char*> {};

// In which step, on which rank.
TEST_P(SlowRankTest, IsWaitedForLongerThanTheTimeout) {
  const std::string where = GetParam();
  const std::string path = where == "one file" ? kPath + ".pt" : kPath;
  const auto storage = memory_storage();
  Meets meets;
  if (where == "data")
    meets.at_file = [](const std::string& name) {
      if (name.starts_with("__1_")) sleep_long();
    };
  if (where == "commit") meets.at_commit = sleep_long;
  if (where == "one file")
    meets.at_file = [](const std::string& name) {
      if (name == Draft::kItself) sleep_long();
    };
  const auto slow = std::make_shared<StorageThatMeets>(storage, meets);
  EXPECT_THAT(on_ranks(3, [&](World&) { save(state_of(1), path, {.storage = slow}); }), Each(Ended()));
  EXPECT_EQ(number_in(storage, path), 1);
  EXPECT_THAT(on_ranks(3, [&](World&) { save_async(state_of(2), path, {.storage = slow}).wait(); }), Each(Ended()));
  EXPECT_EQ(number_in(storage, path), 2);
}

INSTANTIATE_TEST_SUITE_P(Steps, SlowRankTest, ::testing::Values("data", "commit", "one file"));

// A storage that hangs, and is given up; the rank that was caught in it hears of it when it comes back.
TEST(CheckpointRanksTest, ARankThatHangsIsGivenUpByTheOthersWhereTheyAreToldSo) {
  const auto storage = memory_storage();
  EXPECT_THAT(on_ranks(3, [&](World&) { save(state_of(1), kPath, {.storage = storage}); }), Each(Ended()));
  for (const std::string where : {"__1_0.distcp", "the commit"}) {
    std::atomic<int> gone_on{0};
    const auto hang = [&] {
      while (gone_on < 2) std::this_thread::sleep_for(milliseconds(1));  // until the others have left
    };
    const auto hangs = std::make_shared<StorageThatMeets>(storage, Meets{.at_file =
                                                                             [&](const std::string& name) {
                                                                               if (name == where) hang();
                                                                             },
                                                                         .at_commit =
                                                                             [&] {
                                                                               if (where == "the commit") hang();
                                                                             }});
    const bool in_commit = where == "the commit";
    const auto ends = on_ranks(3, [&](World& world) {
      const Ended end =
          how_it_ends([&] { save(state_of(2), kPath, {.storage = hangs, .give_up_after = milliseconds(100)}); });
      if (world.rank() != (in_commit ? 0 : 1)) ++gone_on;
      EXPECT_EQ(end.kind, Kind::error);
      EXPECT_THAT(end.text, HasSubstr("save: ranks are still at work, and the others have given them up\n"));
      EXPECT_THAT(end.text, HasSubstr(in_commit ? "  rank 0: putting in place runs/ck for "
                                                : "  rank 1: writing runs/ck/__1_0.distcp for "));
      barrier(world.group());  // they go on together
    });
    EXPECT_THAT(ends, Each(Ended()));
    EXPECT_EQ(number_in(storage), in_commit ? 2 : 1);  // the commit came to its end after all
    EXPECT_THAT(storage->drafts(kPath), IsEmpty());
  }
  EXPECT_THAT(
      on_ranks(2, [&](World&) { save(state_of(3), kPath, {.storage = storage, .give_up_after = milliseconds(0)}); }),
      Each(::testing::Field(&Ended::text, HasSubstr("the time after which ranks give up is not positive"))));
}

TEST(CheckpointRanksTest, ARankThatReadsForLongIsWaitedFor) {
  const auto storage = memory_storage();
  EXPECT_THAT(on_ranks(3, [&](World&) { save(state_of(1), kPath, {.storage = storage}); }), Each(Ended()));
  Meets meets;
  meets.at_open = [](const std::string& path) {
    if (path.ends_with("__1_0.distcp")) sleep_long();
  };
  const auto slow = std::make_shared<StorageThatMeets>(storage, meets);
  EXPECT_THAT(on_ranks(3,
                       [&](World&) {
                         StateDict state = state_of(0);
                         load(state, kPath, {.storage = slow});
                         EXPECT_EQ(full_tensor(*state.at("x").tensor()).sum().item<double>(), 30);
                       }),
              Each(Ended()));
}

// Each rank's files fit together, and all of them would be the parts of two checkpoints.
TEST(CheckpointRanksTest, RanksThatFindDifferentSavesLoadNeither) {
  for (const std::string path : {"runs/ck", "runs/ck.safetensors", "runs/ck.pt"}) {
    const auto before = memory_storage();
    const auto after = memory_storage();
    const auto state_of = [](double value) {
      const auto whole = torch::full({6}, value);
      return StateDict{{"w", distribute_tensor(whole, init_device_mesh("cpu", {2}), {Shard(0)})}};
    };
    spawn(2, [&](World& world) {
      save(state_of(1), path, {.storage = before});
      save(state_of(2), path, {.storage = after});
      StateDict state = state_of(0);
      try {
        load(state, path, {.storage = world.rank() == 0 ? before : after});
        ADD_FAILURE() << path << " was loaded";
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what_without_backtrace(), HasSubstr("load: the ranks found different checkpoints at one path"
                                                              "\n  checkpoint: " +
                                                              path + "\n  rank 0: "));
      }
      EXPECT_TRUE(to_local(*state.at("w").tensor()).eq(0).all().item<bool>());
      load(state, path, {.storage = after});
      EXPECT_TRUE(to_local(*state.at("w").tensor()).eq(2).all().item<bool>());
    });
  }
}

// What a load that is not strict has to know of them, one rank tells the others.
TEST(CheckpointRanksTest, OneRankLooksAtTheCheckpointsThatAManagerMayComeTo) {
  const auto storage = memory_storage();
  std::atomic<int> looks{0};
  const auto counting = std::make_shared<StorageThatMeets>(
      storage, Meets{.at_open = [&](const std::string& path) { looks += path.ends_with("/.metadata") ? 1 : 0; }});
  const auto ends = on_ranks(3, [&](World& world) {
    CheckpointManager saving("run", {.storage = storage});
    for (const int64_t step : {1, 2, 3, 4}) saving.save(step, state_of(static_cast<double>(step)));
    barrier(world.group());
    CheckpointManager loading("run", {.storage = counting});
    StateDict state = state_of(0);
    EXPECT_EQ(loading.load_latest(state, {.strict = false}), 4);
    EXPECT_EQ(full_tensor(*state.at("x").tensor()).sum().item<double>(), 4 * 30);
  });
  EXPECT_THAT(ends, Each(Ended()));
  EXPECT_EQ(looks, 4 + 3);  // at all of them by one rank, and at the newest by each
}

// Hosts with disks of their own, each of which made the checkpoint of the same files.
TEST(CheckpointRanksTest, CopiesThatWereMadeApartAreOneCheckpoint) {
  for (const std::string path : {"runs/ck", "runs/ck.safetensors", "runs/ck.pt"}) {
    const std::vector<std::shared_ptr<Storage>> disks{memory_storage(), memory_storage()};
    spawn(2, [&](World& world) {
      const auto storage = disks[static_cast<size_t>(world.rank())];
      for (const auto& disk : disks) save(state_of(3), path, {.storage = disk});
      for (const bool all_verify : {true, false}) {  // ranks without digests have nothing to compare
        StateDict state = state_of(0);
        load(state, path, {.storage = storage, .verify = all_verify || world.rank() == 0});
        EXPECT_TRUE(to_local(*state.at("x").tensor()).eq(3).all().item<bool>()) << path;
      }
    });
  }
}

// One rank needs half a minute, another one fails at once.
TEST(CheckpointRanksTest, ARankAtWorkStopsWhenAnotherFails) {
  const auto storage = memory_storage();
  const auto slowly = [](const CheckpointProgress&) { std::this_thread::sleep_for(milliseconds(250)); };
  std::vector<Ended> ends;
  const double seconds = seconds_of([&] {
    ends = on_ranks(2, [&](World& world) {
      const bool fails = world.rank() == 1;
      const auto full = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string&) { disk_is_full(); }});
      save(state_of(1, int64_t{60} << 20), kPath,
           {.storage = fails ? std::shared_ptr<Storage>(full) : storage,
            .progress = fails ? std::function<void(const CheckpointProgress&)>() : slowly});
    });
  });
  EXPECT_THAT(ends, Each(Ended{Kind::error,
                               "save: 1 of 2 ranks failed\n"
                               "  rank 1: create: no space left\n"
                               "  help: mend what these ranks say; no rank went on"}));
  EXPECT_LT(seconds, 10);
  EXPECT_THAT(storage->drafts(kPath), IsEmpty());
}

TEST(CheckpointRanksTest, ARankAtWorkMissesOneThatIsGone) {
  const auto storage = memory_storage();
  const auto slowly = [](const CheckpointProgress&) { std::this_thread::sleep_for(milliseconds(250)); };
  std::vector<std::string> texts(3);
  const double seconds = seconds_of([&] {
    EXPECT_ANY_THROW(spawn(3,
                           [&](World& world) {
                             const auto goes = std::make_shared<StorageThatMeets>(
                                 storage, Meets{[&](const std::string&) {
                                   std::this_thread::sleep_for(kTimeout * 3 / 2);  // the others have asked already
                                   world.fail("it went");
                                 }});
                             const bool is_slow = world.rank() == 0;
                             const std::shared_ptr<Storage> own = world.rank() == 1 ? goes : storage;
                             const StateDict state = state_of(1, int64_t{90} << 20);
                             try {
                               save(state, kPath,
                                    {.storage = own,
                                     .progress = is_slow ? slowly : std::function<void(const CheckpointProgress&)>()});
                             } catch (const c10::Error& error) {
                               texts[static_cast<size_t>(world.rank())] = error.what_without_backtrace();
                               throw;
                             }
                           },
                           {.timeout = kTimeout}));
  });
  for (const size_t rank : {0U, 2U}) EXPECT_THAT(texts[rank], HasSubstr("it went")) << rank;
  EXPECT_LT(seconds, 10);
  EXPECT_FALSE(storage->exists(kPath));
}

TEST(CheckpointRanksTest, ACopyThatCannotBeMadeIsAnErrorOnEveryRankAtOnce) {
  const auto storage = memory_storage();
  std::vector<std::string> texts(3);
  spawn(3,
        [&](World& world) {
          StateDict state = state_of(1);
          const auto rank = static_cast<size_t>(world.rank());
          // No memory holds a copy of it.
          if (rank == 1) state["far too large"] = torch::zeros({1}).expand({int64_t{1} << 50});
          const Ended end = how_it_ends([&] { save_async(state, kPath, {.storage = storage}); });
          EXPECT_EQ(end.kind, Kind::error) << rank;
          texts[rank] = end.text;
          barrier(world.group());
          EXPECT_THAT(storage->drafts(kPath), IsEmpty());
          barrier(world.group());
          save_async(state_of(2), kPath, {.storage = storage}).wait();
        },
        {.timeout = kTimeout});
  EXPECT_THAT(texts, Each(HasSubstr("save: 1 of 3 ranks failed\n  rank 1: ")));
  EXPECT_EQ(number_in(storage), 2);
}

// A user's own tensor that does not know its boxes when it is asked.
class WithoutBoxes final : public Checkpointable {
 public:
  explicit WithoutBoxes(bool fails) : fails_(fails) {}
  std::vector<ChunkMetadata> chunk_list() const override {
    if (fails_) throw std::runtime_error("the boxes are not known");
    return {{{0}, {4}}};
  }
  at::Tensor shard(const ShardIndex& /*index*/) const override { return torch::ones({4}); }
  Dims global_size() const override { return {4}; }

 protected:
  std::vector<WriteItem> held_items(const std::string& name) const override {
    return {{name, {{0}, {4}}, {4}, {}, torch::ones({4})}};
  }

 private:
  bool fails_;
};

TEST(CheckpointRanksTest, BoxesThatOneRankCannotNameAreAnErrorOnEveryRank) {
  const auto storage = memory_storage();
  spawn(2,
        [&](World& world) {
          const StateDict state{{"own", std::make_shared<WithoutBoxes>(world.rank() == 1)}};
          EXPECT_EQ(how_it_ends([&] { save(state, kPath, {.storage = storage}); }),
                    (Ended{Kind::error,
                           "save: 1 of 2 ranks failed\n"
                           "  rank 1: the boxes are not known\n"
                           "  help: mend what these ranks say; no rank went on"}));
          barrier(world.group());
          EXPECT_THAT(storage->drafts(kPath), IsEmpty());
        },
        {.timeout = kTimeout});
}

// The others' states fit.
TEST(CheckpointRanksTest, AStateThatDoesNotFitOnOneRankIsAnErrorOnEveryRank) {
  const auto storage = memory_storage();
  spawn(3, [&](World&) { save({{"x", torch::ones({4})}, {"y", torch::ones({2})}}, kPath, {.storage = storage}); });
  struct Fault {
    const char* key;
    std::vector<int64_t> size;
    const char* said;
  };
  for (const Fault& fault :
       {Fault{"x", {5}, "x: load: size [4] in the checkpoint, [5] in the state"}, Fault{"z", {4}, "missing: z"}}) {
    const auto ends = on_ranks(3, [&](World& world) {
      const at::Tensor x = torch::zeros({4});
      StateDict state{{"x", x}};
      if (world.rank() == 1) state[fault.key] = torch::zeros(fault.size);
      const Ended end = how_it_ends([&] { load(state, kPath, {.storage = storage}); });
      EXPECT_EQ(end.kind, Kind::value_error);
      EXPECT_THAT(end.text, HasSubstr("load: 1 of 3 ranks failed\n  rank 1: load: "));
      EXPECT_THAT(end.text, HasSubstr(fault.said));
      EXPECT_TRUE(x.eq(0).all().item<bool>());  // nothing was filled
    });
    EXPECT_THAT(ends, Each(Ended()));
  }
}

class KindOfErrorTest : public ::testing::TestWithParam<int> {};

TEST_P(KindOfErrorTest, IsTheSameWhateverTheNumberOfRanks) {
  const auto storage = memory_storage();
  const auto kinds = [&](const std::function<void(World&)>& call) {
    std::vector<Kind> all;
    for (const Ended& end : on_ranks(GetParam(), call)) all.push_back(end.kind);
    return all;
  };
  const auto last = [](const World& world) { return world.rank() == world.size() - 1; };
  const auto full = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string&) { disk_is_full(); }});
  const auto no_commit = std::make_shared<StorageThatMeets>(storage, Meets{.at_commit = disk_is_full});
  EXPECT_THAT(kinds([&](World& world) {
                save(state_of(1), kPath, {.storage = last(world) ? std::shared_ptr<Storage>(full) : storage});
              }),
              Each(Kind::error));
  EXPECT_THAT(kinds([&](World&) { save(state_of(1), kPath, {.storage = no_commit}); }), Each(Kind::error));
  EXPECT_THAT(kinds([&](World& world) {
                StateDict state = state_of(1);
                if (last(world))
                  state["loss"] = from_local(torch::ones({2}), init_device_mesh("cpu", {1}), {Partial()});
                save(state, kPath, {.storage = storage});
              }),
              Each(Kind::value_error));
  EXPECT_THAT(kinds([&](World&) { save(state_of(1), "", {.storage = storage}); }), Each(Kind::value_error));
  EXPECT_THAT(storage->drafts(kPath), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, KindOfErrorTest, ::testing::Values(1, 3));

// Disks that are not shared.
TEST(CheckpointRanksTest, EachRankRemovesWhatItWroteWhereTheOthersDoNotSeeIt) {
  std::vector<std::shared_ptr<Storage>> disks{memory_storage(), memory_storage(), memory_storage()};
  const auto own = [&](const World& world) { return disks[static_cast<size_t>(world.rank())]; };
  EXPECT_THAT(on_ranks(3, [&](World& world) { save(state_of(1), kPath, {.storage = own(world)}); }),
              Each(::testing::Field(&Ended::text, HasSubstr("a file that another rank wrote is not to be seen here"))));
  for (const auto& disk : disks) EXPECT_THAT(disk->drafts(kPath), IsEmpty());
  EXPECT_THAT(
      on_ranks(3,
               [&](World& world) {
                 const auto full =
                     std::make_shared<StorageThatMeets>(own(world), Meets{[](const std::string&) { disk_is_full(); }});
                 save(state_of(1), kPath, {.storage = world.rank() == 1 ? std::shared_ptr<Storage>(full) : own(world)});
               }),
      Each(::testing::Field(&Ended::text, HasSubstr("rank 1: create: no space left"))));
  for (const auto& disk : disks) EXPECT_THAT(disk->drafts(kPath), IsEmpty());
}

// What a disk says to one of the ranks.
TEST(CheckpointRanksTest, ADiskThatFailsOneRankIsTheSameErrorOnAll) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("checkpoint-ranks-{}", ::getpid());
  const std::string path = (folder / "ck").string();
  const std::vector<std::pair<int, std::string>> faults{
      {ENOSPC, "no space left on device"}, {EACCES, "permission denied"}, {EROFS, "read-only file system"}};
  const auto disk = disk_storage();
  EXPECT_THAT(on_ranks(3, [&](World&) { save(state_of(1), path, {.storage = disk}); }), Each(Ended()));
  for (const auto& [error, why] : faults) {
    const auto posix = std::make_shared<FaultyPosix>();
    posix->fail("__1_0.distcp", error);
    const auto faulty = disk_storage(Disk{.posix = posix});
    const auto ends =
        on_ranks(3, [&](World& world) { save(state_of(2), path, {.storage = world.rank() == 1 ? faulty : disk}); });
    EXPECT_THAT(ends, Each(ends.front()));
    EXPECT_EQ(ends.front().kind, Kind::error);
    EXPECT_THAT(ends.front().text, HasSubstr("save: 1 of 3 ranks failed\n  rank 1: write: " + why + "\n      file: "));
    EXPECT_EQ(number_in(disk, path), 1);
    EXPECT_THAT(disk->drafts(path), IsEmpty());
  }
  std::filesystem::remove_all(folder);
}

TEST(SaveAsyncTest, ASecondSaveWaitsForTheFirst) {
  const auto storage = memory_storage();
  spawn(2, [&](World&) {
    std::atomic<int> under_way{0};
    const auto one_at_a_time = std::make_shared<StorageThatMeets>(storage, Meets{[&](const std::string& name) {
                                                                    if (!name.starts_with("__")) return;
                                                                    EXPECT_EQ(under_way.fetch_add(1), 0);
                                                                    std::this_thread::sleep_for(milliseconds(300));
                                                                    under_way.fetch_sub(1);
                                                                  }});
    SaveFuture first = save_async(state_of(1), kPath + "-1", {.storage = one_at_a_time});
    EXPECT_FALSE(first.ready());
    SaveFuture second = save_async(state_of(2), kPath + "-2", {.storage = one_at_a_time});
    EXPECT_TRUE(first.ready());  // it came back when the first was over
    EXPECT_FALSE(second.ready());
    second.wait();
    first.wait();
  });
  EXPECT_EQ(number_in(storage, kPath + "-1"), 1);
  EXPECT_EQ(number_in(storage, kPath + "-2"), 2);
}

// A draft of a save under way is none that was left behind.
TEST(SaveAsyncTest, ASaveToTheSamePathWaitsForTheOneUnderWay) {
  const auto storage = memory_storage();
  const auto slow = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string& name) {
                                                         if (!name.starts_with("__")) return;
                                                         std::this_thread::sleep_for(milliseconds(300));
                                                       }});
  spawn(2, [&](World&) {
    SaveFuture first = save_async(state_of(1), kPath, {.storage = slow});
    save(state_of(2), kPath, {.storage = slow});
    EXPECT_GT(first.wait().bytes, 0);
  });
  EXPECT_EQ(number_in(storage), 2);
}

TEST(SaveAsyncTest, TwoManagersOfAFolderLeaveEachOthersSavesAlone) {
  const auto storage = memory_storage();
  const auto slow = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string& name) {
                                                         if (!name.starts_with("__")) return;
                                                         std::this_thread::sleep_for(milliseconds(300));
                                                       }});
  spawn(2, [&](World& world) {
    CheckpointManager one("run", {.storage = slow});
    CheckpointManager other("run", {.storage = slow});
    SaveFuture first = one.save_async(1, state_of(1));
    SaveFuture second = other.save_async(2, state_of(2));
    EXPECT_EQ(how_it_ends([&] { first.wait(); }), Ended());
    EXPECT_EQ(how_it_ends([&] { second.wait(); }), Ended());
    barrier(world.group());
    EXPECT_EQ(one.steps(), (std::vector<int64_t>{1, 2}));
  });
  for (const int64_t step : {1, 2}) EXPECT_EQ(number_in(storage, fmt::format("run/step-{}", step)), step);
}

// A save beside it waits, and tells of its own end alone.
TEST(SaveAsyncTest, AFailureIsStillToldByTheFutureAfterAnotherSave) {
  const auto storage = memory_storage();
  const auto full = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string& name) {
                                                         if (name.starts_with("__1_")) disk_is_full();
                                                       }});
  spawn(2, [&](World&) {
    SaveFuture failed = save_async(state_of(1), kPath, {.storage = full});
    EXPECT_EQ(how_it_ends([&] { save(state_of(2), kPath, {.storage = storage}); }), Ended());
    EXPECT_THAT(how_it_ends([&] { failed.wait(); }).text, HasSubstr("rank 1: create: no space left"));
  });
  EXPECT_EQ(number_in(storage), 2);
}

TEST(SaveAsyncTest, ProgressGrowsToItsEnd) {
  const auto storage = memory_storage();
  constexpr int64_t kRows = int64_t{4} << 20;
  spawn(2, [&](World&) {
    std::atomic<bool> may_go_on{false};
    const auto hold = [&](const CheckpointProgress&) {
      while (!may_go_on) std::this_thread::sleep_for(milliseconds(1));
    };
    SaveFuture future = save_async(state_of(1, kRows), kPath, {.storage = storage, .progress = hold});
    // It has written something, and is held there.
    CheckpointProgress now = future.progress();
    while (now.bytes == 0) now = future.progress();
    EXPECT_LT(now.bytes, now.total);
    EXPECT_GE(now.total, kRows / 2 * 4);  // this rank's half, 4 bytes each
    EXPECT_FALSE(future.ready());
    may_go_on = true;
    future.wait();
    EXPECT_TRUE(future.ready());
    const CheckpointProgress end = future.progress();
    EXPECT_EQ(end.bytes, end.total);
    EXPECT_EQ(end.total, now.total);
  });
}

// A backend that a program had carries one thread's calls: two would mix.
TEST(SaveAsyncTest, AGivenGroupIsNotUsedByTwoThreads) {
  const auto storage = memory_storage();
  const auto full = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string& name) {
                                                         if (name.starts_with("__1_")) disk_is_full();
                                                       }});
  const auto slow = std::make_shared<StorageThatMeets>(
      storage, Meets{[](const std::string&) { std::this_thread::sleep_for(milliseconds(5)); }});
  spawn(2,
        [&](World& world) {
          const Group given = Group::from_backend(world.group().backend(c10::DeviceType::CPU), {0, 1});
          for (int i = 1; i <= 10; ++i) {
            SaveFuture future = save_async(state_of(i), kPath, {.group = given, .storage = slow});
            at::Tensor sum = torch::full({4}, double(world.rank() + i));
            all_reduce(given, sum);  // while a save may run, on the same backend
            EXPECT_TRUE(sum.eq(2 * i + 1).all().item<bool>());
            EXPECT_GT(future.wait().bytes, 0);
            EXPECT_EQ(number_in(storage), i);
            barrier(given);
          }
          // How it failed is told as ever: not by the call that starts it.
          SaveFuture future = save_async(state_of(99), kPath, {.group = given, .storage = full});
          barrier(given);
          EXPECT_THAT(how_it_ends([&] { future.wait(); }).text, HasSubstr("rank 1: create: no space left"));
          EXPECT_EQ(number_in(storage), 10);
        },
        {.timeout = kTimeout * 10});
}

TEST(SaveAsyncTest, AFutureKeepsNothingOfTheState) {
  const auto storage = memory_storage();
  spawn(2, [&](World& world) {
    // Its saves make no copy.
    const Group given = Group::from_backend(world.group().backend(c10::DeviceType::CPU), {0, 1});
    at::Tensor tensor = torch::ones({100});
    const c10::weak_intrusive_ptr<c10::StorageImpl> memory = tensor.storage().getWeakStorageImpl();
    SaveFuture future = save_async({{"x", tensor}}, kPath, {.group = given, .storage = storage});
    tensor.reset();
    EXPECT_GT(future.wait().bytes, 0);
    EXPECT_TRUE(memory.expired());
    EXPECT_EQ(future.progress().bytes, future.progress().total);
  });
}

TEST(SaveAsyncTest, AFailureIsToldByTheFutureOrElseByTheNextCall) {
  const auto storage = memory_storage();
  const auto full = std::make_shared<StorageThatMeets>(storage, Meets{[](const std::string& name) {
                                                         if (name.starts_with("__1_")) disk_is_full();
                                                       }});
  spawn(2, [&](World& world) {
    const std::string why =
        "save: 1 of 2 ranks failed\n"
        "  rank 1: create: no space left\n"
        "  help: mend what these ranks say; no rank went on";
    save_async(state_of(1), kPath, {.storage = storage}).wait();
    SaveFuture future = save_async(state_of(2), kPath, {.storage = full});
    EXPECT_EQ(how_it_ends([&] { future.wait(); }), (Ended{Kind::error, why}));
    EXPECT_EQ(how_it_ends([&] { future.wait(); }), (Ended{Kind::error, why}));  // as often as one asks
    // Whoever asked is not told again.
    SaveFuture unasked = save_async(state_of(3), kPath, {.storage = full});
    const Ended told = how_it_ends([&] { save_async(state_of(4), kPath, {.storage = storage}); });
    EXPECT_EQ(told.kind, Kind::error);
    EXPECT_THAT(told.text, HasSubstr("rank 0: save_async: the save before this one failed, and nobody asked how it"));
    EXPECT_THAT(told.text, HasSubstr("rank 1: create: no space left"));
    EXPECT_EQ(how_it_ends([&] { unasked.wait(); }), (Ended{Kind::error, why}));
    barrier(world.group());
    EXPECT_EQ(number_in(storage), 1);
    EXPECT_THAT(storage->drafts(kPath), IsEmpty());
    barrier(world.group());
    save_async(state_of(5), kPath, {.storage = storage}).wait();
    EXPECT_EQ(number_in(storage), 5);
  });
}

}  // namespace
}  // namespace sherd::testing
