// sherd::call and the handle of distribute_module: what is asked of a module's inputs and outputs, where no parameter
// can carry it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "property/train_alike.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;

// Sees what it is given.
struct LookImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    seen = to_string(x);
    return x * 2;
  }
  std::string seen;
};
TORCH_MODULE(Look);

struct AddImpl : nn::Module {
  std::tuple<Tensor, Tensor> forward(const Tensor& x, double factor, const Tensor& y) {
    seen = {to_string(x), to_string(y)};
    return {x + y * factor, y};
  }
  std::vector<std::string> seen;
};
TORCH_MODULE(Add);

TEST(ModuleCallTest, WithoutWishesItIsForward) {
  nn::Linear linear(3, 2);
  const Tensor x = torch::ones({4, 3});
  EXPECT_TRUE(call(linear, x).equal(linear->forward(x)));
  EXPECT_TRUE(call(*linear, x).equal(linear->forward(x)));
  EXPECT_TRUE(call(linear.ptr(), x).equal(linear->forward(x)));
  nn::Sequential both(nn::Linear(3, 3), nn::ReLU());
  EXPECT_TRUE(call(both, x).equal(both->forward(x)));
}

TEST(ModuleCallTest, PrepareModuleInput) {
  spawn(2, [](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = numbers({4, 6});
    const Tensor part = x.chunk(2, 0)[static_cast<size_t>(world.rank())];
    Look look;
    parallelize_module(look, tp, PrepareModuleInput{{Shard(0)}, {Replicate()}});
    expect_close(call(look, part), x * 2, "a part");
    EXPECT_EQ(look->seen, "f64[4, 6] on [tp=2]");
    call(look, distribute_tensor(x, tp, {Shard(1)}));
    EXPECT_EQ(look->seen, "f64[4, 6] on [tp=2]");
    look->forward(part);
    EXPECT_EQ(look->seen, "f64[2, 6]") << "forward itself knows nothing of it";

    Look local;
    parallelize_module(local, tp, PrepareModuleInput{{Replicate()}, {Shard(1)}, /*use_local_output=*/true});
    call(local, x);
    EXPECT_EQ(local->seen, "f64[4, 3]");
  });
}

TEST(ModuleCallTest, PrepareModuleOutput) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = numbers({4, 6});
    Look look;
    parallelize_module(look, tp, PrepareModuleOutput{{Replicate()}, {Shard(1)}});
    const Tensor output = call(look, x);
    EXPECT_EQ(to_string(output), "f64[4, 6@tp] on [tp=2]");
    expect_close(output, x * 2, "output");
    Look local;
    parallelize_module(local, tp, PrepareModuleOutput{{Replicate()}, {Shard(1)}, /*use_local_output=*/true});
    EXPECT_EQ(to_string(call(local, x)), "f64[4, 3]");
  });
}

TEST(ModuleCallTest, SeveralArgumentsAndResults) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = numbers({4, 6});
    Add add;
    parallelize_module(add, tp,
                       PrepareModuleInputOutput{.input_layouts = {Replicate(), std::nullopt, Replicate()},
                                                .desired_input_layouts = {Shard(0), std::nullopt, Shard(1)},
                                                .output_layouts = {Replicate(), std::nullopt},
                                                .desired_output_layouts = {Shard(0), std::nullopt}});
    const auto [sum, second] = call(add, x, 0.5, x);
    EXPECT_THAT(add->seen, ::testing::ElementsAre("f64[4@tp, 6] on [tp=2]", "f64[4, 6@tp] on [tp=2]"));
    EXPECT_EQ(to_string(sum), "f64[4@tp, 6] on [tp=2]");
    EXPECT_EQ(to_string(second), "f64[4, 6@tp] on [tp=2]");
    expect_close(sum, x * 1.5, "sum");
  });
}

TEST(ModuleCallTest, LocalOutputsOfStyles) {
  auto dense = made([] { return nn::Linear(6, 4); });
  const Tensor x = numbers({2, 3, 6});
  const Tensor expected = dense->forward(x);
  spawn(2, [&](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    auto linear = made([] { return nn::Linear(6, 4); });
    parallelize_module(linear, tp, ColwiseParallel{.use_local_output = true});
    const Tensor mine = call(linear, x);
    EXPECT_FALSE(is_dtensor(mine));
    expect_close(mine, expected.chunk(2, 2)[static_cast<size_t>(world.rank())], "columns");
    mine.sum().backward();
    expect_close(linear->weight.grad(), x.sum(at::IntArrayRef{0, 1}).expand({4, 6}), "gradient");
  });
}

TEST(ModuleCallTest, SequenceParallelWithoutAWeight) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = numbers({2, 4, 6});
    nn::LayerNorm norm(nn::LayerNormOptions({6}).elementwise_affine(false));
    parallelize_module(norm, tp, SequenceParallel());
    const Tensor output = call(norm, x);
    EXPECT_EQ(to_string(output), "f64[2, 4@tp, 6] on [tp=2]");
    expect_close(output, torch::layer_norm(x, {6}), "output");
  });
}

// PrepareModule* on a layer whose weight an operator uses need no sherd::call.
TEST(ModuleCallTest, PreparedLinearLayersRideOnTheirWeight) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    auto linear = made([] { return nn::Linear(6, 4); });
    parallelize_module(linear, tp, PrepareModuleOutput{{Replicate()}, {Shard(0)}});
    EXPECT_EQ(to_string(linear->forward(numbers({4, 6}))), "f64[4@tp, 4] on [tp=2]");
    EXPECT_EQ(to_string(linear->weight), "f64[4, 6] on [tp=2]");
  });
}

TEST(ModuleCallTest, InputAndOutputFunctionsOfDistributeModule) {
  auto dense = made([] { return nn::Linear(6, 4); });
  const Tensor x = numbers({5, 6});
  const Tensor expected = dense->forward(x);
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    auto linear = made([] { return nn::Linear(6, 4); });
    std::string seen;
    const auto distributed = distribute_module(
        linear, mesh, {},
        [](std::vector<Tensor>& tensors, const DeviceMesh& on) {
          tensors[0] = distribute_tensor(tensors[0], on, {Shard(0)});
        },
        [&](std::vector<Tensor>& tensors, const DeviceMesh&) {
          seen = to_string(tensors[0]);
          tensors[0] = full_tensor(tensors[0]);
        });
    const Tensor output = distributed.forward(x);
    EXPECT_EQ(seen, "f64[5@dp, 4] on [dp=2]");
    EXPECT_FALSE(is_dtensor(output));
    expect_close(output, expected, "by the handle");
    expect_close(call(linear, x), expected, "by call");
    EXPECT_EQ(to_string(distributed->weight), "f64[4, 6] on [dp=2]");
  });
}

TEST(ModuleCallTest, SharedTensorsStayShared) {
  struct Net : nn::Module {
    Net() : a(register_module("a", nn::Linear(3, 3))), b(register_module("b", a)) {}
    nn::Linear a, b;
  };
  spawn(2, [](World&) {
    auto net = made([] { return std::make_shared<Net>(); });
    distribute_module(*net, init_device_mesh("cpu", {2}, {"dp"}),
                      [](const std::string&, const Tensor&) { return Placements{Shard(0)}; });
    EXPECT_TRUE(net->a->weight.is_same(net->b->weight));
    EXPECT_EQ(to_string(net->b->weight), "f64[3@dp, 3] on [dp=2]");
  });
}

// A module that comes to lie where another one was has none of its wishes.
TEST(ModuleCallTest, WishesEndWithTheModule) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    for (int i = 0; i < 8; ++i) {
      Look look;
      EXPECT_EQ(to_string(call(look, numbers({4, 6}))), "f64[4, 6]");
      parallelize_module(look, tp, PrepareModuleOutput{{Replicate()}, {Shard(1)}});
      EXPECT_EQ(to_string(call(look, numbers({4, 6}))), "f64[4, 6@tp] on [tp=2]");
    }
  });
}

}  // namespace
}  // namespace sherd::testing
