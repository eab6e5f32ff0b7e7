// Checkpoints of every format in an object store: saved by some ranks, loaded by others, replaced and removed.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "crash/passing_storage.h"
#include "s3/ending_http.h"
#include "s3/server.h"
#include "sherd/convert.h"
#include "sherd/inspect.h"
#include "sherd/sherd.h"
#include "storage/s3.h"

namespace sherd::testing {
namespace {

using ::testing::IsEmpty;

struct Form {
  const char* name;
  const char* ending;
  CheckpointFormat format;
};

class CheckpointS3Test : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    if (!s3_missing().empty()) GTEST_SKIP() << s3_missing();
    storage_ = s3_storage(s3_options());
    root_ = s3_root();
  }
  std::string path(const std::string& name = "ck") const { return *root_ + "/" + name + GetParam().ending; }
  SaveOptions options() const { return {.storage = storage_, .format = GetParam().format}; }

  void save_filled(int64_t ranks, double value) const {
    spawn(ranks, [&](World& world) {
      const auto mesh = init_device_mesh("cpu", {world.size()});
      const auto w = distribute_tensor(torch::arange(70.).view({7, 10}) + value, mesh, {Shard(0)});
      save({{"model", StateDict{{"w", w}}}, {"value", value}}, path(), options());
    });
  }
  void expect_filled(int64_t ranks, double value) const {
    spawn(ranks, [&](World& world) {
      const auto mesh = init_device_mesh("cpu", {world.size()});
      const auto w = distribute_tensor(torch::zeros({7, 10}), mesh, {Shard(1)});
      StateDict state{{"model", StateDict{{"w", w}}}, {"value", 0.0}};
      load(state, path(), {.storage = storage_});
      EXPECT_TRUE(full_tensor(w).equal(torch::arange(70.).view({7, 10}) + value));
      EXPECT_EQ(*state.at("value").number(), value);
    });
  }

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<const std::string> root_;
};

INSTANTIATE_TEST_SUITE_P(Formats, CheckpointS3Test,
                         ::testing::Values(Form{"dcp", "", CheckpointFormat::dcp},
                                           Form{"safetensors_folder", "", CheckpointFormat::safetensors},
                                           Form{"safetensors", ".safetensors", CheckpointFormat::automatic},
                                           Form{"torch_save", ".pt", CheckpointFormat::automatic}),
                         [](const auto& test) { return test.param.name; });

TEST_P(CheckpointS3Test, AnyRanksToAnyRanksAgainAndAgain) {
  save_filled(2, 1.0);
  expect_filled(3, 1.0);
  save_filled(3, 2.0);  // fewer ranks afterwards: files of the third must not count any more
  save_filled(1, 3.0);
  expect_filled(2, 3.0);
  EXPECT_THAT(verify_checkpoint(path(), {.storage = storage_}).damage, IsEmpty());
}

TEST_P(CheckpointS3Test, IsRewrittenOverItself) {
  save_filled(2, 1.0);
  const std::string other = path("other");
  for (const int64_t bytes : {64, 1 << 20}) {  // several files, and one
    RewriteOptions rewrite;
    rewrite.format = GetParam().format;
    rewrite.overwrite = true;
    rewrite.from_storage = storage_;
    rewrite.to_storage = storage_;
    const bool in_files = std::string(GetParam().name) == "safetensors_folder";
    if (in_files) rewrite.file_bytes = bytes;
    rewrite_checkpoint({path()}, other, rewrite);
    rewrite_checkpoint({path()}, other, rewrite);
    const StateDict loaded = load_state_dict(other, {}, {.storage = storage_});
    EXPECT_TRUE(loaded.at("model").dict()->at("w").tensor()->equal(torch::arange(70.).view({7, 10}) + 1.0));
    EXPECT_EQ(*loaded.at("value").number(), 1.0);
  }
  EXPECT_THAT(storage_->drafts_in(*root_), IsEmpty());
}

class CheckpointsOnS3Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!s3_missing().empty()) GTEST_SKIP() << s3_missing();
    storage_ = s3_storage(s3_options());
    root_ = s3_root();
  }
  std::string path(const std::string& name) const { return *root_ + "/" + name; }

  // Several blocks that never change, and several that do.
  static StateDict state_at(int64_t step) {
    const auto blocks = torch::arange(3 << 18, torch::kFloat);
    return {{"constant", blocks}, {"w", blocks + step}, {"step", step}};
  }
  static void expect_loaded(const StateDict& state, int64_t step) {
    const StateDict expected = state_at(step);
    for (const char* name : {"constant", "w"}) {
      EXPECT_TRUE(state.at(name).tensor()->equal(*expected.at(name).tensor())) << name;
    }
    EXPECT_EQ(*state.at("step").integer(), step);
  }
  void expect_loads(const std::string& path, int64_t step) const {
    StateDict state = state_at(-1);
    load(state, path, {.storage = storage_});
    expect_loaded(state, step);
    EXPECT_THAT(verify_checkpoint(path, {.storage = storage_}).damage, IsEmpty());
  }

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<const std::string> root_;
};

TEST_F(CheckpointsOnS3Test, StandOnOthersInAnyFolder) {
  save(state_at(1), path("a/one"), {.storage = storage_});
  int64_t step = 2;
  for (const std::string& name : {path("a/two"), path("b/three"), "/" + path("b/four"), "top " + *root_}) {
    const SaveResult result = save(state_at(step), name, {.storage = storage_, .base = path("a/one")});
    EXPECT_GT(result.bytes_in_base, 2 << 20);
    EXPECT_LT(result.bytes, 6 << 20);
    expect_loads(name, step++);
  }
  // At the top of the bucket.
  const std::string top = "top of " + root_->substr(root_->rfind('/') + 1);
  save(state_at(1), top, {.storage = storage_});
  save(state_at(step), path("c"), {.storage = storage_, .base = top});
  expect_loads(path("c"), step);
  EXPECT_THROW(save(state_at(step), top, {.storage = storage_, .base = path("c")}), c10::Error);
  for (const BaseInfo& base : inspect_checkpoint(path("c"), {.storage = storage_}).bases) EXPECT_TRUE(base.there);
}

TEST_F(CheckpointsOnS3Test, AreKeptRemovedAndGoneOnFrom) {
  for (const bool incremental : {false, true}) {
    const std::string folder = path(incremental ? "incremental" : "whole");
    spawn(2, [&](World& world) {
      CheckpointManager checkpoints(folder, {.keep_last = 2, .incremental = incremental, .storage = storage_});
      StateDict state = state_at(0);
      EXPECT_EQ(checkpoints.load_latest(state), std::nullopt);
      for (int64_t step = 1; step <= 4; ++step) checkpoints.save_async(step, state_at(step));
      checkpoints.wait();
      const std::vector<int64_t> kept = incremental ? std::vector<int64_t>{1, 3, 4} : std::vector<int64_t>{3, 4};
      EXPECT_EQ(checkpoints.steps(), kept);
      barrier(world.group());
      // A damaged one is skipped, is no base, does not count, and goes in time.
      if (world.rank() == 0) storage_->remove(checkpoints.path_of(4) + "/.metadata");
      barrier(world.group());
      EXPECT_EQ(checkpoints.load_latest(state), 3);
      expect_loaded(state, 3);
      EXPECT_EQ(checkpoints.warnings().size(), 1U);
      for (const int64_t step : {5, 6}) checkpoints.save(step, state_at(step));
      EXPECT_EQ(checkpoints.steps(), incremental ? (std::vector<int64_t>{1, 5, 6}) : (std::vector<int64_t>{5, 6}));
      for (const int64_t step : checkpoints.steps()) expect_loads(checkpoints.path_of(step), step);
    });
    EXPECT_THAT(storage_->drafts_in(folder), IsEmpty());
  }
}

// Saves, removals and what stands on others, by a process that is gone at some of their requests. Gone at any request
// they are in checkpoint_store_crash_test, which has the store in memory.
TEST_F(CheckpointsOnS3Test, AProcessThatEndsAtARequestLeavesARunThatGoesOn) {
  constexpr int64_t kStep = 7;
  const auto state_at = [](int64_t step) {  // a block that never changes, and more
    return StateDict{{"constant", torch::ones({(1 << 18) + 10})}, {"step", step}};
  };
  for (const bool arrives : {false, true}) {
    bool ended = true;
    for (int64_t stops = arrives ? 0 : kStep / 2; ended; stops += kStep) {
      SCOPED_TRACE(fmt::format("{} requests{}", stops, arrives ? " and one that nobody heard the answer of" : ""));
      const std::string folder = path(fmt::format("run {} {}", stops, arrives));
      const auto http = std::make_shared<EndingHttp>(stops, arrives);
      const CheckpointManagerOptions options{.keep_last = 1, .incremental = true, .storage = storage_};
      int64_t begun = 0;
      int64_t saved = 0;
      try {
        CheckpointManagerOptions ending = options;
        ending.storage = s3_storage(s3_options(), http);
        CheckpointManager checkpoints(folder, ending);
        while (saved < 3) {
          ++begun;
          checkpoints.save(begun, state_at(begun));
          saved = begun;
        }
      } catch (...) {
        ASSERT_TRUE(http->ended());  // whatever became of it on its way
      }
      ended = http->ended();

      CheckpointManager checkpoints(folder, options);
      StateDict state = state_at(0);
      if (saved > 0) {
        const auto latest = checkpoints.load_latest(state);
        ASSERT_TRUE(latest == saved || latest == begun);
        EXPECT_EQ(*state.at("step").integer(), *latest);
      }
      checkpoints.save(4, state_at(4));
      ASSERT_EQ(checkpoints.load_latest(state), 4);
      EXPECT_EQ(*state.at("step").integer(), 4);
      EXPECT_THAT(storage_->drafts_in(folder), IsEmpty());
      for (const int64_t step : checkpoints.steps()) {
        const std::string there = checkpoints.path_of(step);
        if (!storage_->exists(there + "/.metadata")) continue;  // what a kept one needs of it is there: it was loaded
        load(state, there, {.storage = storage_});
        EXPECT_EQ(*state.at("step").integer(), step);
      }
      EXPECT_THAT(verify_checkpoint(checkpoints.path_of(4), {.storage = storage_}).damage, IsEmpty());
      storage_->remove(folder);
      EXPECT_TRUE(ended || saved == 3);
    }
  }
}

TEST_F(CheckpointsOnS3Test, AStoreThatDoesNotAnswerIsNoDamage) {
  const std::string folder = path("run");
  CheckpointManager checkpoints(folder, {.storage = storage_});
  for (const int64_t step : {1, 2}) checkpoints.save(step, state_at(step));
  // Finds the files, and cannot read them.
  class ReadsNothing final : public PassingStorage {
   public:
    ReadsNothing(std::shared_ptr<Storage> storage, std::shared_ptr<Storage> closed)
        : PassingStorage(std::move(storage)), closed_(std::move(closed)) {}
    std::unique_ptr<StoredFile> open(const std::string& path) const override { return closed_->open(path); }

   private:
    std::shared_ptr<Storage> closed_;
  };
  S3Options closed = s3_options(S3Door::closed);
  closed.retries = 0;
  CheckpointManager unlucky(folder,
                            {.keep_last = 1, .storage = std::make_shared<ReadsNothing>(storage_, s3_storage(closed))});
  StateDict state = state_at(0);
  EXPECT_THROW(unlucky.load_latest(state), c10::Error);
  EXPECT_THAT(unlucky.warnings(), IsEmpty());
  unlucky.save(3, state_at(3));  // is saved, and nothing removed
  EXPECT_EQ(unlucky.warnings().size(), 1U);
  EXPECT_EQ(checkpoints.steps(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(checkpoints.load_latest(state), 3);
}

}  // namespace
}  // namespace sherd::testing
