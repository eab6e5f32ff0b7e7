// "xla" meshes without a bridge, and what XLA does not take: the whole text, on every rank.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using ::testing::Each;

const std::string kNoBridge =
    ": to use an \"xla\" mesh, install the torch_xla package\n"
    "  mesh: [dp=2, tp=4]\n"
    "  bridge: none is registered\n"
    "  help: sherd::register_xla_bridge({.mark = ..., .is_marked = ...}): docs/xla.md";

DeviceMesh devices() { return init_device_mesh("xla", {2, 4}, {"dp", "tp"}); }

// A bridge that takes every tensor.
struct RegisteredBridge {
  explicit RegisteredBridge(const std::function<at::Tensor(const at::Tensor&)>& mark) {
    register_xla_bridge({.mark = [mark](const at::Tensor& tensor, const XlaSharding&) { return mark(tensor); },
                         .is_marked = [](const at::Tensor& tensor) { return tensor.dim() == 3; },
                         .gather = {}});
  }
  ~RegisteredBridge() { register_xla_bridge({}); }
};

TEST(XlaBridgeErrors, NoBridgeOnAnyRank) {
  EXPECT_THAT(errors_of_ranks(3,
                              [](World&) {
                                distribute_tensor(torch::ones({8, 8}), devices(), {Shard(0), Shard(1)});
                              }),
              Each("distribute_tensor" + kNoBridge));
  EXPECT_THAT(errors_of_ranks(3,
                              [](World&) {
                                torch::nn::Linear layer(8, 8);
                                distribute_module(*layer, devices());
                              }),
              Each("distribute_module weight" + kNoBridge));
  EXPECT_THAT(errors_of_ranks(3,
                              [](World&) {
                                at::Tensor weight = torch::ones({8, 8});
                                distribute_parameter_(weight, devices(), {Shard(0), Shard(1)});
                              }),
              Each("distribute_parameter_" + kNoBridge));
}

TEST(XlaBridgeErrors, WhatXlaDevicesDoNot) {
  const auto text = [](const std::string& operation, const std::string& problem) {
    return operation + ": " + problem +
           "\n  mesh: [dp=2, tp=4]\n  help: distribute_tensor(x, mesh, placements) gives x to XLA: docs/xla.md";
  };
  const World world = fake_world(0, 2);
  const WorldScope scope(world);
  const DeviceMesh mesh = devices();
  EXPECT_EQ(value_error([&] {
              zeros({8}, mesh, {Shard(0), Replicate()});
            }),
            text("zeros", "XLA devices hold no DTensors"));
  EXPECT_EQ(value_error([&] {
              from_local(torch::ones({8}), mesh, {Shard(0), Replicate()});
            }),
            text("from_local", "XLA devices hold no DTensors"));
  EXPECT_EQ(value_error([&] { mesh.group("dp"); }),
            text("group", "an \"xla\" mesh names devices: no rank stands in it"));
  EXPECT_EQ(value_error([&] { mesh["dp"]; }), text("mesh[...]", "an \"xla\" mesh names devices: no rank stands in it"));
  torch::nn::Linear layer(8, 8);
  EXPECT_EQ(value_error([&] { fully_shard(*layer, mesh); }), text("fully_shard", "XLA devices hold no DTensors"));
  EXPECT_EQ(value_error([&] { data_parallel(*layer, mesh); }), text("data_parallel", "XLA devices hold no DTensors"));
}

TEST(XlaBridgeErrors, TensorsThatCannotBeGiven) {
  const RegisteredBridge bridge([](const at::Tensor& tensor) { return tensor; });
  const World world = fake_world(0, 1);
  const WorldScope scope(world);
  const DeviceMesh mesh = devices();
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({8, 8}), mesh, {Shard(0), Partial()});
            }),
            "distribute_tensor: parts of a sum cannot be given to XLA\n"
            "  placement: P(sum) on axis tp\n"
            "  help: distribute_tensor(x, mesh, {Shard(0), Replicate()})");
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({2, 2, 2}), mesh, {Shard(0), Replicate()});
            }),
            "distribute_tensor: the tensor is distributed already\n"
            "  it is: marked for XLA\n"
            "  help: distribute_tensor(full_tensor(x), mesh, placements)");
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({8}), mesh, {Shard(1), Replicate()});
            }),
            "distribute_tensor: dim 1 is out of range for a tensor of 1 dim\n"
            "  placement: S(1) on axis dp\n"
            "  mesh: [dp=2, tp=4]\n"
            "  shape: [8]\n"
            "  help: distribute_tensor(x, mesh, {Shard(0), Replicate()})");
  EXPECT_EQ(value_error([&] {
              full_tensor(torch::ones({2, 2, 2}));
            }),
            "full_tensor: the XLA bridge cannot gather\n"
            "  tensor: f32[2, 2, 2]\n"
            "  help: sherd::register_xla_bridge({.mark = ..., .is_marked = ..., .gather = ...})");
}

TEST(XlaBridgeErrors, AModuleIsLeftAloneWhereOneTensorCannotBeGiven) {
  int marked = 0;
  const RegisteredBridge bridge([&](const at::Tensor& tensor) {
    ++marked;
    return tensor;
  });
  const World world = fake_world(0, 1);
  const WorldScope scope(world);
  torch::nn::Linear layer(8, 8);
  EXPECT_EQ(value_error([&] {
              distribute_module(*layer, devices(), [](const std::string& name, const at::Tensor&) {
                return name == "bias" ? Placements{Partial(), Replicate()} : Placements{Shard(0), Replicate()};
              });
            }),
            "distribute_module bias: parts of a sum cannot be given to XLA\n"
            "  placement: P(sum) on axis dp\n"
            "  help: distribute_tensor(x, mesh, {Replicate(), Replicate()})");
  EXPECT_EQ(marked, 0);
}

TEST(XlaBridgeErrors, ABridgeThatReturnsAnotherTensor) {
  const RegisteredBridge bridge([](const at::Tensor& tensor) { return tensor.view({-1}); });
  const World world = fake_world(0, 1);
  const WorldScope scope(world);
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({8, 8}), devices(), {Shard(0), Replicate()});
            }),
            "distribute_tensor: the XLA bridge has returned another tensor\n"
            "  given: f32[8, 8]\n"
            "  returned: f32[64]\n"
            "  help: XlaBridge::mark returns the tensor itself, or one of its shape");
}

TEST(XlaBridgeErrors, ABridgeWithoutItsFunctions) {
  EXPECT_EQ(value_error([] {
              register_xla_bridge({.mark = {}, .is_marked = [](const at::Tensor&) { return true; }, .gather = {}});
            }),
            "register_xla_bridge: a bridge needs both of its functions\n"
            "  missing: mark\n"
            "  help: sherd::register_xla_bridge({.mark = ..., .is_marked = ...}): docs/xla.md");
}

}  // namespace
}  // namespace sherd::testing
