// Checkpoints of every format in an object store: saved by some ranks, loaded by others, replaced and removed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "s3/server.h"
#include "sherd/convert.h"
#include "sherd/inspect.h"
#include "sherd/sherd.h"

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

}  // namespace
}  // namespace sherd::testing
