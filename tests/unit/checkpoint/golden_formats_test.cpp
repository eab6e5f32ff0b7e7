// One state in every format, as earlier programs wrote it (tests/python/make_golden_checkpoints.py), is read by this
// one.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

std::string golden(const std::string& name) { return std::string(SHERD_SOURCE_DIR) + "/tests/golden/" + name; }

at::Tensor weight() { return torch::arange(24.).view({4, 6}) / 2; }
at::Tensor bias() { return torch::arange(5).to(torch::kBFloat16); }
at::Tensor mask() { return torch::arange(6).view({2, 3}) % 2 == 0; }

struct Golden {
  const char* name;
  bool has_objects = true;
  size_t more = 0;  // keys beside those that all have
};

class GoldenFormatsTest : public ::testing::TestWithParam<Golden> {};

void expect_equal(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(found.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(found.equal(expected)) << what;
}

TEST_P(GoldenFormatsTest, IsReadAsAWhole) {
  const StateDict state = load_state_dict(golden(std::string("formats/") + GetParam().name));
  const auto tensor = [&](const std::string& name) {
    const StateValue* model = state.find("model");
    return *(model != nullptr ? model->dict()->at(name) : state.at("model." + name)).tensor();
  };
  expect_equal(tensor("weight"), weight(), "weight");
  expect_equal(tensor("bias"), bias(), "bias");
  expect_equal(tensor("count"), torch::tensor(int64_t{7}), "count");
  expect_equal(tensor("mask"), mask(), "mask");
  EXPECT_EQ(state.contains("step"), GetParam().has_objects);
  if (!GetParam().has_objects) return;
  EXPECT_EQ(*state.at("step").integer(), 1000);
  EXPECT_EQ(*state.at("lr").number(), 0.25);
  EXPECT_EQ(*state.at("names").list()->at(0).text(), "a");
  EXPECT_EQ(*state.at("names").list()->at(1).text(), "b");
  EXPECT_EQ(state.size(), 4U + GetParam().more);
}

TEST_P(GoldenFormatsTest, IsReadOnThreeRanks) {
  spawn(3, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {3});
    const auto sharded = [&](const at::Tensor& like, int64_t dim) {
      return distribute_tensor(torch::zeros_like(like), mesh, {Shard(dim)});
    };
    StateDict state{{"model", StateDict{{"weight", sharded(weight(), 1)}, {"bias", sharded(bias(), 0)}}}};
    load(state, golden(std::string("formats/") + GetParam().name));
    const StateDict& model = *state.at("model").dict();
    expect_equal(full_tensor(*model.at("weight").tensor()), weight(), "weight");
    expect_equal(full_tensor(*model.at("bias").tensor()), bias(), "bias");
  });
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFormatsTest,
                         ::testing::Values(Golden{"torch_dcp"}, Golden{"torch_ranks", false},
                                           Golden{"torch_rank_metadata", true, 1}, Golden{"torch_2_3", true, 1},
                                           Golden{"sherd_indexed"}, Golden{"torch_indexed", false},
                                           Golden{"library.safetensors", false}, Golden{"torch.pt"},
                                           Golden{"sherd_dcp"}, Golden{"sherd_dcp_compressed"},
                                           Golden{"sherd_incremental"}, Golden{"sherd_ranks"},
                                           Golden{"sherd.safetensors"}, Golden{"sherd.pt"}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Where ranks did not talk while saving, each has values of its own, and gets them back.
TEST(GoldenRankMetadataTest, EachRankReadsWhatItSaved) {
  spawn(2, [](World& world) {
    const auto rank = static_cast<double>(world.rank());
    StateDict state{{"own", StateDict{{"seed", int64_t{0}}, {"state", torch::zeros({3})}}}};
    load(state, golden("formats/torch_rank_metadata"));
    const StateDict& own = *state.at("own").dict();
    EXPECT_EQ(*own.at("seed").integer(), 10 + world.rank());
    expect_equal(*own.at("state").tensor(), torch::full({3}, rank), "own.state");
  });
}

// PyTorch before 2.4 kept a dict without tensors as one object.
TEST(GoldenBefore24Test, AValueInsideOfAnObjectIsFound) {
  StateDict state{{"schedule", StateDict{{"warmup", int64_t{0}}, {"name", ""}}}};
  load(state, golden("formats/torch_2_3"));
  EXPECT_EQ(*state.at("schedule").dict()->at("warmup").integer(), 10);
  EXPECT_EQ(*state.at("schedule").dict()->at("name").text(), "cosine");
  const StateDict whole = load_state_dict(golden("formats/torch_2_3"));
  EXPECT_EQ(*whole.at("schedule").dict()->at("warmup").integer(), 10);
}

// The parameters of a module that torch::save wrote count from 100, 200 and so on, in their order.
TEST(GoldenTorchSaveTest, AModuleOfCpp) {
  const StateDict state = load_state_dict(golden("torch_save/cpp_module.pt"));
  const auto from = [](double first, Dims size) {
    return (torch::arange(numel(size), torch::kFloat) + first).view(size);
  };
  const StateDict& block = *state.at("block").dict();
  expect_equal(*block.at("scale").tensor(), from(0, {2}), "block.scale");
  expect_equal(*block.at("count").tensor(), torch::tensor(int64_t{7}), "block.count");
  expect_equal(*block.at("inner").dict()->at("weight").tensor(), from(100, {2, 3}), "block.inner.weight");
  expect_equal(*block.at("inner").dict()->at("bias").tensor(), from(200, {2}), "block.inner.bias");
  const StateDict& norm = *state.at("norm").dict();
  expect_equal(*norm.at("weight").tensor(), from(300, {2}), "norm.weight");
  expect_equal(*norm.at("bias").tensor(), from(400, {2}), "norm.bias");
  expect_equal(*norm.at("running_var").tensor(), torch::ones({2}), "norm.running_var");
  expect_equal(*state.at("half").dict()->at("weight").tensor(), from(500, {2, 2}).to(torch::kBFloat16), "half.weight");
}

}  // namespace
}  // namespace sherd::testing
