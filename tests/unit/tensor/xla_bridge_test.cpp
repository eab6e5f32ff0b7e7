// What a bridge is given, with a stand-in for torch_xla: tensors that remember the sharding they were marked with.

#include "sherd/xla_bridge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

// Marks tensors in place, as torch_xla does, or makes copies, as a bridge to another device would.
class StandIn {
 public:
  explicit StandIn(bool copies = false) {
    register_xla_bridge({
        .mark =
            [this, copies](const at::Tensor& tensor, const XlaSharding& sharding) {
              const at::Tensor marked = copies ? tensor.detach().clone() : tensor;
              const std::lock_guard lock(mutex_);
              marked_[marked.const_data_ptr()] = {marked, to_string(sharding)};
              return marked;
            },
        .is_marked = [this](const at::Tensor& tensor) { return !sharding_of(tensor).empty(); },
        .gather = [](const at::Tensor& tensor) { return tensor.detach().clone(); },
    });
  }
  ~StandIn() { register_xla_bridge({}); }

  std::string sharding_of(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto found = marked_.find(tensor.const_data_ptr());
    return found == marked_.end() ? "" : found->second.second;
  }

 private:
  std::mutex mutex_;
  // The tensors stay, so that no other gets the memory of one.
  std::map<const void*, std::pair<at::Tensor, std::string>> marked_;
};

DeviceMesh devices() { return init_device_mesh("xla", {2, 4}, {"dp", "tp"}); }

TEST(XlaBridgeTest, AMeshOfMoreDevicesThanRanks) {
  const World world = fake_world(0, 1);
  const WorldScope scope(world);
  const DeviceMesh mesh = devices();
  EXPECT_EQ(mesh.device_type(), c10::DeviceType::XLA);
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.coordinate(), std::nullopt);
  EXPECT_EQ(to_string(mesh), "[dp=2, tp=4]");
  EXPECT_EQ(mesh, devices());
}

TEST(XlaBridgeTest, ATensorIsGivenWithItsSharding) {
  StandIn xla;
  const World world = fake_world(0, 1);
  const WorldScope scope(world);
  const at::Tensor x = torch::arange(64.0).view({8, 8}).requires_grad_();
  const at::Tensor marked = distribute_tensor(x, devices(), {Shard(1), Shard(0)});
  EXPECT_TRUE(marked.is_same(x));
  EXPECT_FALSE(is_dtensor(marked));
  EXPECT_EQ(xla.sharding_of(marked), "{devices=[4,2]<=[2,4]T(1,0)}");
  EXPECT_TRUE(at::equal(full_tensor(marked), x));
}

TEST(XlaBridgeTest, ACopyKeepsItsGradient) {
  StandIn xla(true);
  const World world = fake_world(0, 1);
  const WorldScope scope(world);
  const at::Tensor x = torch::ones({8, 8}).requires_grad_();
  const at::Tensor marked = distribute_tensor(x, devices(), {Shard(0), Replicate()});
  EXPECT_FALSE(marked.is_same(x));
  EXPECT_TRUE(marked.requires_grad());
  EXPECT_EQ(xla.sharding_of(marked), "{devices=[2,1,4]<=[8] last_tile_dim_replicate}");
}

TEST(XlaBridgeTest, AModuleIsMarkedInPlace) {
  for (const bool copies : {false, true}) {
    StandIn xla(copies);
    const World world = fake_world(0, 1);
    const WorldScope scope(world);
    torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16));
    const at::Tensor before = model->named_parameters()["0.weight"];
    const at::Tensor value = before.detach().clone();
    distribute_module(*model, devices(), [](const std::string& name, const at::Tensor&) {
      return name == "0.weight" ? Placements{Shard(1), Shard(0)} : Placements(2, Replicate());
    });
    const auto parameters = model->named_parameters();
    EXPECT_TRUE(parameters["0.weight"].is_same(before));
    EXPECT_TRUE(before.requires_grad());
    EXPECT_TRUE(at::equal(before, value));
    EXPECT_EQ(xla.sharding_of(before), "{devices=[4,2]<=[2,4]T(1,0)}");
    EXPECT_EQ(xla.sharding_of(parameters["0.bias"]), "{replicated}");
    EXPECT_EQ(xla.sharding_of(model->named_buffers()["1.running_mean"]), "{replicated}");
    model->forward(torch::ones({4, 8})).sum().backward();
    EXPECT_TRUE(before.grad().defined());
  }
}

TEST(XlaBridgeTest, EveryRankOfAProgramMayMark) {
  StandIn xla(true);
  spawn(3, [&](World&) {
    const at::Tensor marked = distribute_tensor(torch::ones({8}), devices(), {Shard(0), Shard(0)});
    EXPECT_EQ(xla.sharding_of(marked), "{devices=[8]<=[8]}");
  });
}

}  // namespace
}  // namespace sherd::testing
