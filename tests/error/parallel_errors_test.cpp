// Every error of parallel modules, whole: what a user reads on every rank when plans, modules or meshes do not fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using ::testing::Each;

struct NetImpl : nn::Module {
  explicit NetImpl(int64_t width = 8)
      : tokens(register_module("tokens", nn::Embedding(10, 4))),
        fc1(register_module("fc1", nn::Linear(4, width))),
        fc2(register_module("fc2", nn::Linear(width, 4))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({4})))),
        head(register_module("head", nn::Linear(nn::LinearOptions(4, 10).bias(false)))) {}
  Tensor forward(const Tensor& ids) { return head(norm(fc2(fc1(tokens(ids))))); }
  nn::Embedding tokens;
  nn::Linear fc1, fc2;
  nn::LayerNorm norm;
  nn::Linear head;
};
TORCH_MODULE(Net);

// What each of two ranks catches.
std::vector<std::string> errors(const std::function<void(const DeviceMesh& tp)>& body) {
  return errors_of_ranks(2, [&](World&) { body(init_device_mesh("cpu", {2}, {"tp"})); });
}

TEST(ParallelErrorTest, APlanThatNamesNoModule) {
  const auto body = [](const DeviceMesh& tp) {
    Net net;
    parallelize_module(net, tp, {{"fc1", ColwiseParallel()}, {"fc3", RowwiseParallel()}});
  };
  EXPECT_THAT(errors(body),
              Each("parallelize_module: the plan names no module\n"
                   "  name: fc3\n"
                   "  style: RowwiseParallel\n"
                   "  modules: tokens, fc1, fc2, norm, head\n"
                   "  help: names are those of named_modules(); * stands for characters between two dots"));
}

TEST(ParallelErrorTest, NothingIsChangedByAPlanThatIsWrong) {
  spawn(2, [](World&) {
    Net net;
    value_error([&] {
      parallelize_module(net, init_device_mesh("cpu", {2}, {"tp"}),
                         {{"fc1", ColwiseParallel()}, {"fc3", RowwiseParallel()}});
    });
    for (const Tensor& parameter : net->parameters()) EXPECT_FALSE(is_dtensor(parameter));
  });
}

TEST(ParallelErrorTest, AStyleForAnotherKindOfModule) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                Net net;
                parallelize_module(net, tp, {{"norm", ColwiseParallel()}});
              }),
              Each("parallelize_module: the style cannot take this module\n"
                   "  style: ColwiseParallel\n"
                   "  module: norm (torch::nn::LayerNormImpl)\n"
                   "  it takes: torch::nn::Linear, torch::nn::Embedding\n"
                   "  help: name the linear layers inside it, or place its parameters by distribute_module"));
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::Linear linear(4, 4);
                parallelize_module(linear, tp, AttentionParallel());
              }),
              Each("parallelize_module: the style cannot take this module\n"
                   "  style: AttentionParallel\n"
                   "  module: the module itself (torch::nn::LinearImpl)\n"
                   "  it takes: torch::nn::MultiheadAttention\n"
                   "  help: name the linear layers inside it, or place its parameters by distribute_module"));
}

TEST(ParallelErrorTest, AMeshOfSeveralAxes) {
  EXPECT_THAT(
      errors_of_ranks(
          4,
          [](World&) {
            Net net;
            parallelize_module(net, init_device_mesh("cpu", {2, 2}, {"dp", "tp"}), {{"fc1", ColwiseParallel()}});
          }),
      Each("parallelize_module: the mesh must have one axis\n"
           "  mesh: [dp=2, tp=2]\n"
           "  help: parallelize_module(module, mesh[\"tp\"], plan)"));
  EXPECT_THAT(errors_of_ranks(4,
                              [](World&) {
                                Net net;
                                parallelize_module(net, init_device_mesh("cpu", {2, 2}), {{"fc1", ColwiseParallel()}});
                              }),
              Each("parallelize_module: the mesh must have one axis\n"
                   "  mesh: [2, 2]\n"
                   "  help: name the axes of the mesh, and pass mesh[\"tp\"]"));
}

TEST(ParallelErrorTest, AnAxisUsedTwice) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                Net net;
                parallelize_module(net, tp, {{"fc1", ColwiseParallel()}});
                parallelize_module(net, tp, {{"fc2", RowwiseParallel()}, {"fc1", ColwiseParallel()}});
              }),
              Each("parallelize_module: mesh axis tp is used twice\n"
                   "  parameter: fc1.weight\n"
                   "  it is: f32[8@tp, 4] on [tp=2]\n"
                   "  help: give a module a style once for each axis; sherd::redistribute moves a tensor"));
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                Net net;
                parallelize_module(net, tp, {{"norm", SequenceParallel()}});
                parallelize_module(net, tp, {{"norm", SequenceParallel()}});
              }),
              Each("parallelize_module: mesh axis tp is used twice\n"
                   "  parameter: norm.weight\n"
                   "  it is: f32[4] on [tp=2]\n"
                   "  help: give a module a style once for each axis; sherd::redistribute moves a tensor"));
}

TEST(ParallelErrorTest, AnotherMeshBefore) {
  EXPECT_THAT(errors_of_ranks(4,
                              [](World&) {
                                const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
                                nn::Linear linear(4, 8);
                                distribute_module(linear, mesh);
                                parallelize_module(linear, mesh["tp"], ColwiseParallel());
                              }),
              Each("parallelize_module: the parameter is distributed over another mesh already\n"
                   "  parameter: weight\n"
                   "  it is: f32[8, 4] on [dp=2, tp=2]\n"
                   "  asked: axis tp\n"
                   "  help: parallelize_module first, then what distributes over the other axes"));
}

TEST(ParallelErrorTest, TwoStylesForOneModule) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                Net net;
                parallelize_module(net, tp, {{"fc*", ColwiseParallel()}, {"fc2", RowwiseParallel()}});
              }),
              Each("parallelize_module: a module has two styles\n"
                   "  module: fc2\n"
                   "  styles: ColwiseParallel: plain input any, output S(-1)\n"
                   "    RowwiseParallel: plain input any, output R\n"
                   "  help: one style that places parameters for each module, and any PrepareModule*"));
}

TEST(ParallelErrorTest, ASharedParameterWithTwoStyles) {
  EXPECT_THAT(
      errors([](const DeviceMesh& tp) {
        Net net;
        net->head->weight = net->tokens->weight;
        parallelize_module(net, tp, {{"tokens", ColwiseParallel()}, {"head", ColwiseParallel()}});
      }),
      Each("parallelize_module: two modules share a parameter and their styles differ\n"
           "  tokens.weight: S(1) (ColwiseParallel: plain input any, output S(-1))\n"
           "  head.weight: S(0) (ColwiseParallel: plain input any, output S(-1))\n"
           "  help: styles that place it alike: RowwiseParallel for an embedding, ColwiseParallel for the linear "
           "layer that shares its weight"));
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                Net net;
                net->register_module("same", net->head);
                distribute_module(*net, tp, [](const std::string& name, const Tensor&) {
                  return name == "same.weight" ? Placements{Shard(1)} : Placements{Replicate()};
                });
              }),
              Each("distribute_module: a tensor that two modules share is to be placed in two ways\n"
                   "  head.weight: (R)\n"
                   "  same.weight: (S(1))\n"
                   "  help: the same placements under both names"));
}

TEST(ParallelErrorTest, RanksWithDifferentModules) {
  const auto body = [](bool parallelize) {
    return errors_of_ranks(3, [=](World& world) {
      const DeviceMesh tp = init_device_mesh("cpu", {3}, {"tp"});
      Net net(world.rank() == 2 ? 6 : 8);
      if (parallelize) {
        parallelize_module(net, tp, {{"fc1", ColwiseParallel()}});
      } else {
        distribute_module(net, tp);
      }
    });
  };
  const std::string rest =
      ": the ranks have different modules\n"
      "  rank 0: parameter fc1.weight f32[8, 4]\n"
      "  rank 2: parameter fc1.weight f32[6, 4]\n"
      "  help: build the same module, with the same options, on every rank of the mesh";
  EXPECT_THAT(body(true), Each("parallelize_module" + rest));
  EXPECT_THAT(body(false), Each("distribute_module" + rest));
}

TEST(ParallelErrorTest, RanksWithMoreModulesThanOthers) {
  EXPECT_THAT(errors_of_ranks(2,
                              [](World& world) {
                                nn::Sequential layers(nn::Linear(4, 4));
                                if (world.rank() == 1)
                                  layers->push_back(nn::Linear(nn::LinearOptions(4, 2).bias(false)));
                                distribute_module(*layers, init_device_mesh("cpu", {2}, {"dp"}));
                              }),
              Each("distribute_module: the ranks have different modules\n"
                   "  rank 0: nothing more\n"
                   "  rank 1: parameter 1.weight f32[2, 4]\n"
                   "  help: build the same module, with the same options, on every rank of the mesh"));
}

TEST(ParallelErrorTest, RanksWithDifferentPlans) {
  EXPECT_THAT(errors_of_ranks(2,
                              [](World& world) {
                                Net net;
                                const Placement output =
                                    world.rank() == 0 ? Placement(Replicate()) : Placement(Shard(1));
                                parallelize_module(net, init_device_mesh("cpu", {2}, {"tp"}),
                                                   {{"fc2", RowwiseParallel{.output_layouts = output}}});
                              }),
              Each("parallelize_module: the ranks have different modules\n"
                   "  rank 0: plan fc2 RowwiseParallel: plain input any, output R\n"
                   "  rank 1: plan fc2 RowwiseParallel: plain input any, output S(1)\n"
                   "  help: build the same module, with the same options, on every rank of the mesh"));
}

TEST(ParallelErrorTest, LayoutsThatDoNotFit) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::ReLU relu;
                parallelize_module(relu, tp, PrepareModuleInput{{Shard(0), Shard(1)}, {Replicate()}});
              }),
              Each("parallelize_module: there must be one desired layout for each layout\n"
                   "  style: PrepareModuleInput\n"
                   "  module: the module itself (torch::nn::ReLUImpl)\n"
                   "  layouts: 2\n"
                   "  desired: 1\n"
                   "  help: PrepareModuleInput{.input_layouts = {Shard(0)}, .desired_input_layouts = {Replicate()}}"));
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::ReLU relu;
                parallelize_module(relu, tp, PrepareModuleInput{{Shard(0), Shard(1)}, {Replicate(), Replicate()}});
                call(relu, torch::ones({2}));
              }),
              Each("call: there must be one layout for each argument\n"
                   "  asked by: PrepareModuleInput of the module itself (torch::nn::ReLUImpl)\n"
                   "  layouts: 2\n"
                   "  arguments: 1\n"
                   "  help: std::nullopt for those that are left alone"));
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::Linear linear(4, 8);
                parallelize_module(linear, tp, RowwiseParallel{.output_layouts = Shard(2)});
                linear->forward(torch::ones({3, 4}));
              }),
              Each("parallelize_module: the tensor cannot have this layout\n"
                   "  asked by: weight\n"
                   "  layout: S(2)\n"
                   "  tensor: f32[3, 8] P(sum)@tp on [tp=2]\n"
                   "  help: Replicate(), or Shard of one of its dims: Shard(-1) is the last"));
}

TEST(ParallelErrorTest, InputFunctionsThatChangeTheNumberOfTensors) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::Linear linear(4, 8);
                const auto drop = [](std::vector<Tensor>& tensors, const DeviceMesh&) { tensors.clear(); };
                distribute_module(linear, tp, {}, drop).forward(torch::ones({3, 4}));
              }),
              Each("call: the number of arguments was changed\n"
                   "  asked by: distribute_module\n"
                   "  before: 1\n"
                   "  after: 0\n"
                   "  help: assign to the tensors of the list; add and remove none"));
}

TEST(ParallelErrorTest, ALocalOutputOfATensorThatIsCutOtherwise) {
  EXPECT_THAT(
      errors_of_ranks(4,
                      [](World&) {
                        const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
                        nn::ReLU relu;
                        parallelize_module(relu, mesh["tp"], PrepareModuleOutput{{Replicate()}, {Shard(1)}, true});
                        call(relu, distribute_tensor(torch::ones({4, 6}), mesh, {Shard(0), Replicate()}));
                      }),
      Each("call: a local tensor would hide that it is cut over another axis\n"
           "  asked by: PrepareModuleOutput of the module itself (torch::nn::ReLUImpl)\n"
           "  tensor: f32[4@dp, 6@tp] on [dp=2, tp=2]\n"
           "  axis: dp\n"
           "  help: leave use_local_output away: a DTensor goes on as it is"));
}

TEST(ParallelErrorTest, AModuleThatNobodyHolds) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::LinearImpl linear(4, 8);
                parallelize_module(linear, tp, ColwiseParallel{.use_local_output = true});
              }),
              Each("parallelize_module: the module must be held by a shared_ptr, as sherd::call finds it by that\n"
                   "  module: torch::nn::LinearImpl\n"
                   "  help: auto module = std::make_shared<NetImpl>(), or a ModuleHolder"));
}

TEST(ParallelErrorTest, AModuleThatIsDistributedAlready) {
  EXPECT_THAT(errors([](const DeviceMesh& tp) {
                nn::Linear linear(4, 8);
                distribute_module(linear, tp);
                distribute_module(linear, tp);
              }),
              Each("distribute_module: the module is distributed already\n"
                   "  parameter: weight\n"
                   "  it is: f32[8, 4] on [tp=2]\n"
                   "  help: distribute a module once; sherd::redistribute moves a tensor"));
}

}  // namespace
}  // namespace sherd::testing
