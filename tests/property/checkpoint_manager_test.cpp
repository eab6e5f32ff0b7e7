// Checkpoints of a run: which stay, which one a run goes on from, and what the next one stands on; when files are
// damaged, when a disk fails for a while, and where there is no disk.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "crash/faulty_posix.h"
#include "sherd/inspect.h"
#include "sherd/sherd.h"
#include "storage/disk.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Steps = std::vector<int64_t>;

// Three blocks and a bit.
at::Tensor blocks_of(double value) { return torch::arange(3 << 18, torch::kFloat64).add_(value).to(torch::kFloat); }

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

class CheckpointManagerTest : public ::testing::Test {
 protected:
  CheckpointManagerTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("checkpoint-manager-{}", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CheckpointManagerTest() override { fs::remove_all(folder_); }

  std::string run() const { return (folder_ / "run").string(); }
  fs::path file(int64_t step, const std::string& name) const {
    return folder_ / "run" / fmt::format("step-{}", step) / name;
  }
  // Through a manager of its own, as an earlier process.
  void save_steps(const Steps& steps, CheckpointManagerOptions options = {}) const {
    CheckpointManager checkpoints(run(), std::move(options));
    for (const int64_t step : steps) checkpoints.save(step, state_at(step));
  }
  static StateDict state_at(int64_t step) {
    return {{"constant", blocks_of(0.5)}, {"w", blocks_of(static_cast<double>(step))}, {"step", step}};
  }
  static void expect_loaded(const StateDict& state, int64_t step) {
    EXPECT_EQ(*state.at("step").integer(), step);
    EXPECT_TRUE(state.at("constant").tensor()->equal(blocks_of(0.5)));
    EXPECT_TRUE(state.at("w").tensor()->equal(blocks_of(static_cast<double>(step))));
  }
  static void expect_loads(const CheckpointManager& checkpoints, int64_t step,
                           const std::shared_ptr<Storage>& storage = {}) {
    StateDict state = state_at(-1);
    load(state, checkpoints.path_of(step), {.storage = storage});
    expect_loaded(state, step);
    EXPECT_THAT(verify_checkpoint(checkpoints.path_of(step), {.storage = storage}).damage, IsEmpty());
  }
  void cut(int64_t step, const std::string& name = "__0_0.distcp") const { fs::resize_file(file(step, name), 100); }
  void flip_a_bit(int64_t step, const std::string& name) const {
    std::fstream bytes(file(step, name), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(20);
    const auto byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(20);
    bytes.put(byte);
  }
  std::string without_folder(std::string text) const {
    for (size_t at = 0; (at = text.find(folder_.string())) != std::string::npos;) {
      text.replace(at, folder_.string().size(), "DIR");
    }
    return text;
  }

  fs::path folder_;
};

TEST_F(CheckpointManagerTest, DamagedOnesDoNotCountAsKeptAndStayUntilThereAreNewer) {
  save_steps({10, 20});
  cut(20);
  CheckpointManager checkpoints(run(), {.keep_last = 1});
  StateDict state = state_at(0);
  EXPECT_EQ(checkpoints.load_latest(state), 10);
  checkpoints.save(15, state_at(15));
  EXPECT_EQ(checkpoints.steps(), (Steps{15, 20}));
  expect_loads(checkpoints, 15);
  checkpoints.save(25, state_at(25));
  EXPECT_EQ(checkpoints.steps(), Steps{25});
}

TEST_F(CheckpointManagerTest, ADamagedOneThatIsSavedAgainCounts) {
  save_steps({10, 20});
  cut(20);
  CheckpointManager checkpoints(run(), {.keep_last = 1});
  StateDict state = state_at(0);
  EXPECT_EQ(checkpoints.load_latest(state), 10);
  checkpoints.save(20, state_at(20));
  EXPECT_EQ(checkpoints.steps(), Steps{20});
  expect_loads(checkpoints, 20);
}

TEST_F(CheckpointManagerTest, WhatWasSavedLastIsTheNewestWhateverItsNumber) {
  save_steps({10, 20, 30});
  CheckpointManager checkpoints(run(), {.keep_last = 2});
  checkpoints.save_async(15, state_at(15));
  checkpoints.wait();
  EXPECT_EQ(checkpoints.steps(), (Steps{15, 30}));
  checkpoints.save(17, state_at(17));
  EXPECT_EQ(checkpoints.steps(), (Steps{15, 17}));
}

TEST_F(CheckpointManagerTest, NothingIsRemovedWhileAManifestCannotBeRead) {
  spawn(2, [&](World&) {
    static std::shared_ptr<FaultyPosix> posix;
    static std::shared_ptr<Storage> storage;
    const Group all = current_world().group();
    if (all.rank() == 0) {
      posix = std::make_shared<FaultyPosix>();
      storage = disk_storage(Disk{.posix = posix});
    }
    barrier(all);
    CheckpointManager checkpoints(run(), {.keep_last = 1, .incremental = true, .storage = storage});
    for (const int64_t step : {1, 2, 3}) checkpoints.save(step, state_at(step));
    EXPECT_EQ(checkpoints.steps(), (Steps{1, 3}));
    barrier(all);
    if (all.rank() == 0) posix->fail("step-4/sherd.manifest", EIO);
    barrier(all);
    checkpoints.save(4, state_at(4));
    EXPECT_EQ(checkpoints.steps(), (Steps{1, 3, 4}));
    ASSERT_EQ(checkpoints.warnings().size(), 1U);
    EXPECT_EQ(without_folder(checkpoints.warnings().front()),
              R"(nothing is removed from DIR/run: open: input/output error
  file: DIR/run/step-4/sherd.manifest
  help: the device failed; dmesg tells more)");
    barrier(all);
    if (all.rank() == 0) posix->heal();
    barrier(all);
    checkpoints.save(5, state_at(5));
    EXPECT_EQ(checkpoints.steps(), (Steps{1, 5}));
    expect_loads(checkpoints, 5);
  });
}

TEST_F(CheckpointManagerTest, ADamagedManifestIsNoBaseAndKeepsNone) {
  save_steps({1, 2}, {.incremental = true});
  flip_a_bit(2, "sherd.manifest");
  CheckpointManager checkpoints(run(), {.keep_last = 1, .incremental = true});
  const SaveResult result = checkpoints.save(3, state_at(3));
  EXPECT_GT(result.bytes_in_base, 0);  // in the first
  EXPECT_EQ(checkpoints.steps(), (Steps{1, 3}));
  expect_loads(checkpoints, 3);
}

TEST_F(CheckpointManagerTest, NoneStandsOnADamagedOne) {
  save_steps({1, 2});
  flip_a_bit(2, "__0_0.distcp");  // its manifest is whole
  CheckpointManager checkpoints(run(), {.incremental = true});
  StateDict state = state_at(0);
  EXPECT_EQ(checkpoints.load_latest(state), 1);
  checkpoints.save(3, state_at(3));
  expect_loads(checkpoints, 3);
  EXPECT_EQ(inspect_checkpoint(checkpoints.path_of(3)).bases.at(0).path, checkpoints.path_of(1));

  fs::remove_all(run());
  save_steps({1});
  flip_a_bit(1, "sherd.manifest");
  EXPECT_EQ(checkpoints.save(2, state_at(2)).bytes_in_base, 0);
  expect_loads(checkpoints, 2);
}

TEST_F(CheckpointManagerTest, AnIncrementalRunInWhichEverythingChangesKeepsNoOthers) {
  CheckpointManager checkpoints(run(), {.keep_last = 2, .incremental = true});
  const auto at = [](int64_t step) { return StateDict{{"w", blocks_of(static_cast<double>(step))}, {"step", step}}; };
  for (int64_t step = 1; step <= 6; ++step) checkpoints.save(step, at(step));
  EXPECT_EQ(checkpoints.steps(), (Steps{5, 6}));
  for (const int64_t step : checkpoints.steps()) {
    StateDict state = at(-1);
    load(state, checkpoints.path_of(step));
    EXPECT_TRUE(state.at("w").tensor()->equal(blocks_of(static_cast<double>(step))));
    EXPECT_THAT(inspect_checkpoint(checkpoints.path_of(step)).bases, IsEmpty());
    EXPECT_THAT(verify_checkpoint(checkpoints.path_of(step)).damage, IsEmpty());
  }
}

TEST_F(CheckpointManagerTest, TheFirstStaysAsLongAsItIsReferredTo) {
  spawn(2, [&](World&) {
    CheckpointManager checkpoints(run(), {.keep_last = 2, .incremental = true});
    for (int64_t step = 1; step <= 6; ++step) {
      checkpoints.save(step, state_at(step));
      EXPECT_EQ(checkpoints.steps().front(), 1);
    }
    EXPECT_EQ(checkpoints.steps(), (Steps{1, 5, 6}));
    for (const int64_t step : checkpoints.steps()) expect_loads(checkpoints, step);
    const auto bases = inspect_checkpoint(checkpoints.path_of(6)).bases;
    ASSERT_EQ(bases.size(), 1U);
    EXPECT_EQ(bases[0].path, checkpoints.path_of(1));
    // Once the tensor changes, too, the first goes.
    for (const int64_t step : {7, 8}) {
      StateDict state = state_at(step);
      state["constant"] = blocks_of(-static_cast<double>(step));
      checkpoints.save(step, state);
    }
    EXPECT_EQ(checkpoints.steps(), (Steps{7, 8}));
  });
}

// One of two tensors changes at each step, so each refers to the one before it.
TEST_F(CheckpointManagerTest, AChainOfReferencesIsNotKeptToItsBeginning) {
  CheckpointManager checkpoints(run(), {.keep_last = 2, .incremental = true});
  const auto at = [](int64_t step) {
    const auto even = static_cast<double>(step / 2), odd = static_cast<double>((step + 1) / 2);
    return StateDict{{"even", blocks_of(even)}, {"odd", blocks_of(-odd)}};
  };
  for (int64_t step = 1; step <= 8; ++step) checkpoints.save(step, at(step));
  EXPECT_EQ(checkpoints.steps(), (Steps{6, 7, 8}));  // the first of these for its blocks
  for (const int64_t step : {7, 8}) {
    StateDict state{{"even", blocks_of(0.5)}, {"odd", blocks_of(0.5)}};
    load(state, checkpoints.path_of(step));
    EXPECT_TRUE(state.at("even").tensor()->equal(*at(step).at("even").tensor()));
    EXPECT_TRUE(state.at("odd").tensor()->equal(*at(step).at("odd").tensor()));
  }
  // What stays for its blocks alone lacks some itself: they are not referred to by what is saved on it.
  fs::remove_all(checkpoints.path_of(7));
  fs::remove_all(checkpoints.path_of(8));
  checkpoints.save(7, at(7));
  StateDict state{{"even", blocks_of(0.5)}, {"odd", blocks_of(0.5)}};
  load(state, checkpoints.path_of(7));
  EXPECT_TRUE(state.at("odd").tensor()->equal(*at(7).at("odd").tensor()));
}

TEST_F(CheckpointManagerTest, AStepThatIsSavedAgainTakesNothingFromThoseThatStandOnIt) {
  spawn(2, [&](World&) {
    CheckpointManager checkpoints(run(), {.incremental = true});
    for (const int64_t step : {1, 2, 3}) checkpoints.save(step, state_at(step));
    const StateDict other{{"constant", blocks_of(7.5)}, {"w", blocks_of(8)}, {"step", int64_t{1}}};
    checkpoints.save(1, other);
    for (const int64_t step : {2, 3}) expect_loads(checkpoints, step);
    EXPECT_THAT(inspect_checkpoint(checkpoints.path_of(3)).bases, IsEmpty());
    // Nothing of the step is kept for them: the next one stands on the newest, as ever.
    checkpoints.save_async(4, state_at(4));
    checkpoints.wait();
    EXPECT_EQ(inspect_checkpoint(checkpoints.path_of(4)).bases.at(0).path, checkpoints.path_of(3));
    checkpoints.save_async(3, other);
    checkpoints.wait();
    expect_loads(checkpoints, 4);
    EXPECT_THAT(checkpoints.warnings(), IsEmpty());
    StateDict state = state_at(0);
    load(state, checkpoints.path_of(1));
    EXPECT_TRUE(state.at("constant").tensor()->equal(blocks_of(7.5)));
  });
}

TEST_F(CheckpointManagerTest, WhereWhatStandsOnAStepIsDamagedItIsSavedAgainWithAWarning) {
  save_steps({1, 2}, {.incremental = true});
  flip_a_bit(2, "__0_0.distcp.blocks");
  CheckpointManager checkpoints(run(), {.incremental = true});
  checkpoints.save(1, state_at(1));
  expect_loads(checkpoints, 1);
  ASSERT_EQ(checkpoints.warnings().size(), 1U);
  EXPECT_THAT(without_folder(checkpoints.warnings().front()),
              HasSubstr("DIR/run/step-2 uses blocks of step-1, which is saved again, and is damaged itself: "));
}

// Nothing refers to blocks that are gone: not through what stood on them, nor in a program that does not know of it.
TEST_F(CheckpointManagerTest, BlocksOfAStepThatWasSavedAgainAreNotReferredTo) {
  for (const bool knows : {true, false}) {
    fs::remove_all(run());
    save_steps({1, 2}, {.incremental = true});
    flip_a_bit(2, "__0_0.distcp.blocks");
    CheckpointManager checkpoints(run(), {.incremental = true});
    checkpoints.save(1, {{"constant", blocks_of(7.5)}, {"w", blocks_of(8)}, {"step", int64_t{1}}});
    CheckpointManager another(run(), {.incremental = true});
    CheckpointManager& next = knows ? checkpoints : another;
    next.save(3, state_at(3));
    expect_loads(next, 3);
    if (knows) {
      EXPECT_THAT(inspect_checkpoint(next.path_of(3)).bases, IsEmpty());  // nor to the damaged one itself
    }
  }
}

// A folder that was renamed by hand may refer to itself.
TEST_F(CheckpointManagerTest, AStepThatStandsOnItselfCanBeSavedAgain) {
  save_steps({1, 2}, {.incremental = true});
  fs::remove_all(file(1, ""));
  fs::rename(file(2, ""), file(1, ""));
  CheckpointManager checkpoints(run(), {.incremental = true});
  checkpoints.save(1, state_at(1));
  expect_loads(checkpoints, 1);
}

// Of two that can be read in part, the newer one has a tensor that the older one lacks.
TEST_F(CheckpointManagerTest, NothingOfASkippedOneStaysInTheState) {
  spawn(2, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto rows = [&](double value) {
      return distribute_tensor(torch::full({1 << 20, 2}, value), mesh, {Shard(0)});
    };
    CheckpointManager checkpoints(run());
    checkpoints.save(10, {{"z", rows(1)}});
    checkpoints.save(20, {{"a", rows(2)}, {"plain", torch::full({4}, 2.)}, {"new", 2.}, {"z", rows(2)}});
    barrier(world.group());
    if (world.rank() == 0) {
      const fs::path last = file(20, "__1_0.distcp");  // its end is read last
      std::fstream bytes(last, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(fs::file_size(last)) - (1 << 20));
      bytes.put('?');
    }
    barrier(world.group());
    const at::Tensor plain = torch::zeros({4});
    StateDict state{{"a", rows(0)}, {"plain", plain}, {"new", 0.}, {"z", rows(0)}};
    EXPECT_EQ(checkpoints.load_latest(state, {.strict = false}), 10);
    EXPECT_EQ(checkpoints.warnings().size(), 1U);
    EXPECT_TRUE(to_local(*state.at("z").tensor()).eq(1).all().item<bool>());
    EXPECT_TRUE(to_local(*state.at("a").tensor()).eq(0).all().item<bool>());
    EXPECT_TRUE(plain.eq(0).all().item<bool>());
    EXPECT_EQ(*state.at("new").number(), 0);
  });
}

// What one rank throws while it makes its state is said by all of them, at once.
TEST_F(CheckpointManagerTest, AStateThatOneRankCannotMakeIsAnErrorOnAll) {
  constexpr std::chrono::milliseconds kTimeout{10'000};
  const auto start = std::chrono::steady_clock::now();
  spawn(2,
        [&](World& world) {
          torch::nn::Linear module(2, 2);
          const torch::nn::Linear other(2, 2);
          torch::optim::SGD optimizer(module->parameters(), 0.1);
          torch::optim::SGD of_another(other->parameters(), 0.1);
          torch::optim::Optimizer& own = world.rank() == 1 ? of_another : optimizer;
          CheckpointManager checkpoints(run());
          const std::string why = "rank 1: get_optimizer_state_dict: the module has not all parameters of the";
          EXPECT_THAT(text_of([&] { checkpoints.save(1, *module, own); }), HasSubstr(why));
          EXPECT_THAT(text_of([&] { checkpoints.save_async(1, *module, own); }), HasSubstr(why));
          EXPECT_THAT(checkpoints.steps(), IsEmpty());
          barrier(world.group());
          checkpoints.save(2, *module, optimizer);
          EXPECT_THAT(text_of([&] { checkpoints.resume(*module, own); }), HasSubstr(why));
          EXPECT_EQ(checkpoints.resume(*module, optimizer), 2);
        },
        {.timeout = kTimeout});
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout);
}

// Names in the run's folder that are no leftovers of its steps.
TEST_F(CheckpointManagerTest, OnlyDraftsOfStepsAreClearedAway) {
  save_steps({10});
  const std::string id = "0123456789abcdef0123456789abcdef";
  const std::vector<std::string> others = {"step-10.tmp-mine", "step-10.old-backup", "best.tmp-" + id};
  for (const std::string& name : others) fs::copy(file(10, ""), folder_ / "run" / name, fs::copy_options::recursive);
  fs::copy(file(10, ""), folder_ / "run" / ("step-20.tmp-" + id), fs::copy_options::recursive);
  CheckpointManager checkpoints(run(), {.keep_last = 1});
  StateDict state = state_at(0);
  EXPECT_EQ(checkpoints.load_latest(state), 10);
  // It may be of a run that goes on, which an evaluation reads.
  EXPECT_TRUE(fs::exists(folder_ / "run" / ("step-20.tmp-" + id)));
  checkpoints.save(30, state_at(30));  // which removes step 10
  EXPECT_FALSE(fs::exists(folder_ / "run" / ("step-20.tmp-" + id)));
  EXPECT_EQ(checkpoints.steps(), Steps{30});
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(folder_ / "run" / name / ".metadata")) << name;
}

TEST_F(CheckpointManagerTest, WhereAnOldOneCannotBeRemovedTheSaveHasSucceeded) {
  const auto posix = std::make_shared<FaultyPosix>();
  spawn(2, [&](World&) {
    CheckpointManager checkpoints(run(), {.keep_last = 1, .storage = disk_storage(Disk{.posix = posix})});
    checkpoints.save(10, {{"n", 10}});
    barrier(current_world().group());
    posix->fail("step-10", EACCES);
    checkpoints.save(20, {{"n", 20}});
    ASSERT_EQ(checkpoints.warnings().size(), 1U);
    EXPECT_THAT(checkpoints.warnings()[0], HasSubstr("step-10 is not removed: remove: permission denied"));
    EXPECT_EQ(checkpoints.steps(), (Steps{10, 20}));
    barrier(current_world().group());
    posix->heal();
    checkpoints.save(30, {{"n", 30}});
    EXPECT_EQ(checkpoints.warnings().size(), 1U);
    EXPECT_EQ(checkpoints.steps(), Steps{30});
  });
}

// An evaluation that follows a run takes nothing from the save that is under way.
TEST_F(CheckpointManagerTest, WhoReadsARunLeavesItsSavesAlone) {
  save_steps({10});
  const auto read = [&](const CheckpointProgress&) {
    CheckpointManager reader(run());
    StateDict state = state_at(0);
    EXPECT_EQ(reader.load_latest(state), 10);
  };
  save(state_at(20), run() + "/step-20", {.progress = read});
  StateDict state = state_at(0);
  EXPECT_EQ(CheckpointManager(run()).load_latest(state), 20);
  expect_loaded(state, 20);
}

// Whoever looks at no list sees them, once and not from every rank.
TEST_F(CheckpointManagerTest, WarningsAreTorchsWarningsToo) {
  struct Heard final : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      const std::lock_guard lock(mutex);
      texts.push_back(warning.msg());
    }
    std::mutex mutex;
    std::vector<std::string> texts;
  } heard;
  save_steps({10, 20});
  fs::remove(file(20, "__0_0.distcp"));
  spawn(2, [&](World&) {
    const c10::WarningUtils::WarningHandlerGuard guard(&heard);
    CheckpointManager checkpoints(run());
    StateDict state = state_at(0);
    EXPECT_EQ(checkpoints.load_latest(state), 10);
  });
  ASSERT_EQ(heard.texts.size(), 1U);
  EXPECT_THAT(heard.texts[0], HasSubstr("step-20 is skipped: "));
}

TEST_F(CheckpointManagerTest, WhereNoneCanBeLoadedItSaysSo) {
  save_steps({10, 20});
  fs::remove(file(20, "__0_0.distcp"));
  cut(10, ".metadata");
  spawn(2, [&](World&) {
    CheckpointManager checkpoints(run());
    StateDict state = state_at(0);
    EXPECT_EQ(without_folder(text_of([&] { checkpoints.load_latest(state); })),
              R"(CheckpointManager: none of the checkpoints in the folder can be loaded
  folder: DIR/run
  step-20: load: 2 of 2 ranks could not read the checkpoint
      rank 0: load: a file of the checkpoint is missing
          file: DIR/run/step-20/__0_0.distcp
          help: another checkpoint, or bring the file back
      rank 1: load: a file of the checkpoint is missing
          file: DIR/run/step-20/__0_0.distcp
          help: another checkpoint, or bring the file back
      help: what the ranks say; no rank went on
  step-10: load: 2 of 2 ranks could not read the checkpoint
      rank 0: load: a file is damaged: its bytes are not those that were saved
          file: DIR/run/step-10/.metadata
          bytes: 0 to 100
          help: another checkpoint, or LoadOptions{.verify = false} to take the bytes as they are
      rank 1: load: a file is damaged: its bytes are not those that were saved
          file: DIR/run/step-10/.metadata
          bytes: 0 to 100
          help: another checkpoint, or LoadOptions{.verify = false} to take the bytes as they are
      help: what the ranks say; no rank went on
  state: may be filled in part
  help: `sherd verify DIR/run/step-20` lists what is damaged, `sherd repair` keeps the rest; another folder starts anew)");
    EXPECT_EQ(checkpoints.warnings().size(), 2U);
  });
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  EXPECT_THROW(CheckpointManager(run()).resume(model, optimizer), c10::Error);
  EXPECT_EQ(CheckpointManager((folder_ / "none").string()).resume(model, optimizer), std::nullopt);
}

TEST_F(CheckpointManagerTest, AStorageThatFailsIsNoDamage) {
  save_steps({10, 20});
  spawn(2, [&](World& world) {
    const auto posix = std::make_shared<FaultyPosix>();  // of each rank
    CheckpointManager checkpoints(run(), {.storage = disk_storage(Disk{.posix = posix})});
    StateDict state = state_at(0);
    for (const char* name : {"step-20/__0_0.distcp", "step-20/.metadata", "step-20/sherd.manifest"}) {
      for (const int error : {EACCES, EMFILE, EIO, ENOMEM}) {
        if (world.rank() == 1) posix->fail(name, error);
        const std::string text = text_of([&] { checkpoints.load_latest(state); });
        EXPECT_THAT(text, HasSubstr("1 of 2 ranks could not read the checkpoint")) << name << " " << error;
        EXPECT_THAT(text, HasSubstr("rank 1: open: ")) << name << " " << error;
        EXPECT_THAT(text, HasSubstr(name));
        EXPECT_THAT(checkpoints.warnings(), IsEmpty());
      }
    }
    posix->heal();
    EXPECT_EQ(checkpoints.load_latest(state), 20);
    expect_loaded(state, 20);
    // One that is not there is, also where it goes between two looks.
    if (world.rank() == 1) posix->fail("step-20/__0_0.distcp", ENOENT);
    EXPECT_EQ(checkpoints.load_latest(state), 10);
    EXPECT_EQ(checkpoints.warnings().size(), 1U);
  });
}

TEST_F(CheckpointManagerTest, WhatAProgramThrowsWhileItIsToldIsNoDamage) {
  save_steps({10, 20});
  CheckpointManager checkpoints(run());
  StateDict state = state_at(0);
  const auto stop = [](const CheckpointProgress&) { throw std::runtime_error("enough"); };
  EXPECT_EQ(text_of([&] { checkpoints.load_latest(state, {.progress = stop}); }), "enough");
  EXPECT_THAT(checkpoints.warnings(), IsEmpty());
}

TEST_F(CheckpointManagerTest, InMemory) {
  spawn(2, [&](World&) {
    static std::shared_ptr<Storage> storage;
    const Group all = current_world().group();
    if (all.rank() == 0) storage = memory_storage();
    barrier(all);
    CheckpointManager checkpoints("run", {.keep_last = 2, .incremental = true, .storage = storage});
    for (int64_t step = 1; step <= 5; ++step) checkpoints.save(step, state_at(step));
    EXPECT_EQ(checkpoints.steps(), (Steps{1, 4, 5}));
    for (const int64_t step : checkpoints.steps()) expect_loads(checkpoints, step, storage);
    StateDict state = state_at(0);
    EXPECT_EQ(checkpoints.load_latest(state), 5);
    expect_loaded(state, 5);
  });
}

TEST_F(CheckpointManagerTest, BasesInOtherFoldersOfAStorageThatIsNoDisk) {
  const auto storage = memory_storage();
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"a/one", "b/two"}, {"top", "c/three"}, {"c/four", "below"}, {"/d/five", "/e/six"}, {"x/", "x2/y//z/"}};
  for (const auto& [base, path] : pairs) {
    save(state_at(1), base, {.storage = storage});
    EXPECT_GT(save(state_at(2), path, {.storage = storage, .base = base}).bytes_in_base, 0);
    StateDict state = state_at(0);
    load(state, path, {.storage = storage});
    expect_loaded(state, 2);
    EXPECT_THAT(verify_checkpoint(path, {.storage = storage}).damage, IsEmpty());
    EXPECT_TRUE(inspect_checkpoint(path, {.storage = storage}).bases.at(0).there) << path;
    EXPECT_THAT(text_of([&] { save(state_at(3), base, {.storage = storage, .base = path}); }),
                HasSubstr("cannot stand on itself"));
  }
}

TEST_F(CheckpointManagerTest, BasesByRelativePathsAreFoundFromAnywhere) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  save(state_at(1), "a/one");
  save(state_at(2), "b/two", {.base = "./a//one/"});
  fs::current_path(before);
  StateDict state = state_at(0);
  load(state, (folder_ / "b/two").string());
  expect_loaded(state, 2);
}

// A model and an optimizer of some class, the same each time.
struct Training {
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

  torch::nn::Sequential model{torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 2)};
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  explicit Training(const Make& make) {
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (at::Tensor& p : model->parameters()) {
      p.copy_(torch::sin(torch::arange(p.numel()) + (phase += 1)).view(p.sizes()));
    }
    optimizer = make(model->parameters());
  }

  void train(int steps) {
    const at::Tensor x = torch::cos(torch::arange(32).to(torch::kFloat)).view({8, 4});
    for (int i = 0; i < steps; ++i) {
      optimizer->step([&] {
        optimizer->zero_grad();
        at::Tensor loss = model->forward(x).pow(2).mean();
        loss.backward();
        return loss;
      });
    }
  }

  void expect_same_weights(const Training& other) const {
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(model->parameters()[i], other.model->parameters()[i], 1e-5, 1e-6)) << i;
    }
  }
};

template <class Optimizer, class Options>
Training::Make maker(const Options& options) {
  return [options](const std::vector<at::Tensor>& p) { return std::make_unique<Optimizer>(p, options); };
}

std::map<std::string, Training::Make> all_optimizers() {
  namespace optim = torch::optim;
  return {{"SGD", maker<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9))},
          {"Adam", maker<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true))},
          {"AdamW", maker<optim::AdamW>(optim::AdamWOptions(0.1))},
          {"Adagrad", maker<optim::Adagrad>(optim::AdagradOptions(0.1).lr_decay(0.1))},
          {"RMSprop", maker<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true))},
          {"LBFGS", maker<optim::LBFGS>(optim::LBFGSOptions(0.1).max_iter(3))}};
}

TEST_F(CheckpointManagerTest, EveryOptimizerOfLibtorchGoesOn) {
  for (const auto& [name, make] : all_optimizers()) {
    SCOPED_TRACE(name);
    CheckpointManager checkpoints(run() + name);
    Training first(make);
    checkpoints.save(0, *first.model, *first.optimizer);  // before any step
    first.train(2);
    checkpoints.save(2, *first.model, *first.optimizer);
    first.train(1);

    Training resumed(make);
    EXPECT_EQ(checkpoints.resume(*resumed.model, *resumed.optimizer), 2);
    resumed.train(1);
    first.expect_same_weights(resumed);

    Training further(make);  // has made more steps than the one that was saved, so that its lists are longer
    further.train(4);
    EXPECT_EQ(checkpoints.resume(*further.model, *further.optimizer), 2);
    further.train(1);
    first.expect_same_weights(further);

    Training by_hand(make);
    StateDict state{{"model", get_model_state_dict(*by_hand.model)},
                    {"optimizer", get_optimizer_state_dict(*by_hand.model, *by_hand.optimizer)},
                    {"step", 0}};
    load(state, checkpoints.path_of(2));
    set_optimizer_state_dict(*by_hand.model, *by_hand.optimizer, *state["optimizer"].dict());
    by_hand.train(1);
    first.expect_same_weights(by_hand);

    Training begun(make);
    StateDict before{{"model", get_model_state_dict(*begun.model)},
                     {"optimizer", get_optimizer_state_dict(*begun.model, *begun.optimizer)}};
    load(before, checkpoints.path_of(0));
    set_optimizer_state_dict(*begun.model, *begun.optimizer, *before["optimizer"].dict());
    begun.train(3);
    first.expect_same_weights(begun);
  }
}

}  // namespace
}  // namespace sherd::testing
