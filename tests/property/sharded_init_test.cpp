// Modules that are born sharded: whole on no rank, the same numbers on every mesh, and ready for a plan.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "property/train_alike.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;

// One of each kind of parameter and buffer.
struct NetImpl : nn::Module {
  NetImpl()
      : tokens(register_module("tokens", nn::Embedding(10, 6))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({6})))),
        fc1(register_module("fc1", nn::Linear(6, 8))),
        fc2(register_module("fc2", nn::Linear(8, 6))),
        last(register_module("last", nn::BatchNorm1d(6))) {
    scale = register_parameter("scale", torch::ones({6}));
    shift = register_parameter("shift", torch::randn({6}) * 0.1);
    places = register_buffer("places", torch::arange(4));
  }
  Tensor forward(const Tensor& ids) {
    const Tensor x = norm(tokens(ids)) * scale + shift;
    return last(x + fc2(torch::gelu(fc1(x))));
  }
  nn::Embedding tokens;
  nn::LayerNorm norm;
  nn::Linear fc1, fc2;
  nn::BatchNorm1d last;
  Tensor scale, shift, places;
};
TORCH_MODULE(Net);

const ParallelPlan kPlan = {{"tokens", RowwiseParallel()},
                            {"fc1", ColwiseParallel()},
                            {"fc2", RowwiseParallel()},
                            {"norm", SequenceParallel{0}}};

Net born(const DeviceMesh& mesh) {
  const ShardedInit guard(mesh);
  return Net();
}

struct BornRun {
  std::vector<Tensor> parameters;
  std::vector<Tensor> outputs;
};

// A run on ranks that were born sharded.
BornRun run_on(int ranks) {
  BornRun result;
  spawn(ranks, [&](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {ranks}, {"tp"});
    manual_seed(7);
    Net net = born(tp);
    std::vector<Tensor> parameters;
    for (const Tensor& parameter : net->parameters()) {
      EXPECT_EQ(to_string(placements_of(parameter)), "(S(0))");
      EXPECT_TRUE(parameter.requires_grad());
      parameters.push_back(full_tensor(parameter.detach()).clone());
    }
    parallelize_module(net, tp, kPlan);
    EXPECT_EQ(to_string(placements_of(net->fc1->weight)), "(S(0))");
    EXPECT_EQ(to_string(placements_of(net->fc2->weight)), "(S(1))");
    EXPECT_EQ(to_string(placements_of(net->scale)), "(R)");
    EXPECT_EQ(to_string(placements_of(net->shift)), "(R)");
    EXPECT_EQ(to_string(placements_of(net->last->running_mean)), "(R)");
    EXPECT_TRUE(is_dtensor(net->places));
    const Tensor ids = torch::arange(5).mul(7).remainder(10);
    const Trained trained = train(*net, [&] { return net->forward(ids); });
    std::vector<Tensor> outputs;
    for (const Tensor& output : trained.outputs) outputs.push_back(full_tensor(output));
    if (world.rank() == 0) result = {parameters, outputs};
  });
  return result;
}

TEST(ShardedInitTest, EveryMeshDrawsTheSameNumbersAndTrainsAlike) {
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const BornRun one = run_on(1);
  EXPECT_GT(one.parameters[0].abs().max().item<double>(), 0.1) << "nothing was drawn";
  for (const int ranks : {2, 3, 4}) {
    const BornRun run = run_on(ranks);
    ASSERT_EQ(run.parameters.size(), one.parameters.size());
    for (size_t i = 0; i < one.parameters.size(); ++i) EXPECT_TRUE(run.parameters[i].equal(one.parameters[i])) << i;
    for (size_t i = 0; i < one.outputs.size(); ++i) expect_close(run.outputs[i], one.outputs[i], std::to_string(i));
  }
  torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
}

TEST(ShardedInitTest, EndsWithItsScope) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    {
      const ShardedInit outer(mesh);
      {
        const ShardedInit inner(mesh);
        EXPECT_EQ(to_string(torch::zeros({4, 2})), "f32[4@tp, 2] on [tp=2]");
      }
      EXPECT_EQ(to_string(torch::full({3}, 2.5)), "f32[3@tp] on [tp=2]");
      EXPECT_FALSE(is_dtensor(torch::zeros({4}, torch::kLong)));
      EXPECT_FALSE(is_dtensor(torch::tensor(1.5)));
    }
    EXPECT_FALSE(is_dtensor(torch::zeros({4, 2})));
  });
}

// Placed by a function: nothing is whole on the way.
TEST(ShardedInitTest, DistributeModuleTakesWhatWasBornOnItsMesh) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    Net net = born(mesh);
    distribute_module(net, mesh, [](const std::string& name, const Tensor& tensor) -> Placements {
      if (tensor.is_floating_point() && tensor.dim() > 0 && name != "scale") return {Shard(0)};
      return {Replicate()};
    });
    EXPECT_EQ(to_string(net->fc1->weight), "f32[8@dp, 6] on [dp=2]");
    EXPECT_EQ(to_string(net->scale), "f32[6] on [dp=2]");
  });
}

}  // namespace
}  // namespace sherd::testing
