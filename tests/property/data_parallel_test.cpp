// data_parallel and fully_shard, alone and beside tensor parallel placements, train as one device does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "corpus.h"
#include "gpt.h"
#include "models/resnet.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;

constexpr int kSteps = 20;

// Constructors draw from torch's one generator: one at a time, from one seed.
template <class Make>
auto made(const Make& make, at::ScalarType dtype) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  torch::manual_seed(3);
  auto module = make();
  module->to(dtype);
  return module;
}

struct Curve {
  std::vector<double> losses;
  std::vector<Tensor> gradients;  // of the last step
  std::vector<Tensor> parameters;
};

Tensor whole(const Tensor& tensor) { return is_dtensor(tensor) ? full_tensor(tensor) : tensor; }

template <class Module, class Loss>
Curve train(Module& module, const Loss& loss, double rate = 1e-3) {
  torch::optim::AdamW optimizer(module->parameters(), torch::optim::AdamWOptions(rate));
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor value = loss(module, step);
    value.backward();
    curve.losses.push_back(whole(value.detach()).template item<double>());
    optimizer.step();
  }
  for (const Tensor& parameter : module->parameters()) {
    curve.gradients.push_back(whole(parameter.grad()).clone());
    curve.parameters.push_back(whole(parameter.detach()).clone());
  }
  return curve;
}

void expect_same(const Curve& got, const Curve& expected, double bound, const std::string& what) {
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], bound * std::abs(expected.losses[i])) << what << ", step " << i;
  }
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(torch::allclose(got.gradients[i], expected.gradients[i], 1e3 * bound, 100 * bound))
        << what << ", gradient " << i;
    EXPECT_TRUE(torch::allclose(got.parameters[i], expected.parameters[i], 1e3 * bound, 100 * bound))
        << what << ", parameter " << i;
  }
}

enum class How { data, full, full_kept, full_alone };

template <class Module>
GradientSyncHandle parallel(Module& module, const DeviceMesh& mesh, How how) {
  switch (how) {
    case How::data:
      return data_parallel(module, mesh, {.bucket_bytes = 1 << 14});
    case How::full:
      return fully_shard(module, mesh);
    case How::full_kept:
      return fully_shard(module, mesh, {.reshard_after_forward = false});
    case How::full_alone:
      break;
  }
  return fully_shard(module, mesh, {.prefetch = false});
}

const char* name_of(How how) {
  switch (how) {
    case How::data:
      return "data_parallel";
    case How::full:
      return "fully_shard";
    case How::full_kept:
      return "fully_shard, kept";
    case How::full_alone:
      break;
  }
  return "fully_shard, no prefetch";
}

GptConfig gpt_config(const Corpus& corpus) {
  return {.vocabulary = corpus.vocabulary(), .layers = 2, .width = 32, .heads = 4, .length = 16};
}

// Heads and hidden units over axis tp.
ParallelPlan tensor_parallel_plan() {
  return {{"blocks.*.attention.query", ColwiseParallel()},
          {"blocks.*.attention.key", ColwiseParallel()},
          {"blocks.*.attention.value", ColwiseParallel()},
          {"blocks.*.attention.out", RowwiseParallel()},
          {"blocks.*.up", ColwiseParallel()},
          {"blocks.*.down", RowwiseParallel()}};
}

struct MeshCase {
  std::vector<int64_t> shape;
  std::vector<std::string> axes;
  std::vector<std::string> data;  // the axes that data_parallel or fully_shard takes
};

TEST(DataParallel, AGptTrainsAsOnOneDevice) {
  const Corpus corpus(kText);
  const auto make = [&] { return Gpt(gpt_config(corpus)); };
  for (const auto& [dtype, bound] : {std::pair(at::kDouble, 1e-10), {at::kFloat, 1e-4}}) {
    Gpt alone = made(make, dtype);
    const Curve expected = train(alone, [&](Gpt& model, int step) {
      const Batch batch = corpus.batch(step, 4, 16);
      return model->loss(batch.inputs, batch.targets);
    });
    ASSERT_LT(expected.losses.back(), 0.9 * expected.losses.front()) << "it does not learn";
    const std::vector<MeshCase> meshes = {
        {{1}, {"dp"}, {"dp"}},
        {{3}, {"dp"}, {"dp"}},
        {{4}, {"dp"}, {"dp"}},
        {{2, 2}, {"dp", "tp"}, {"dp"}},
        {{2, 2}, {"tp", "dp"}, {"dp"}},
        {{2, 2}, {"replica", "shard"}, {"replica", "shard"}},
        {{2, 2, 2}, {"replica", "shard", "tp"}, {"replica", "shard"}},
    };
    for (const MeshCase& on : meshes) {
      if (dtype == at::kFloat && on.axes.back() != "tp") continue;
      for (const How how : {How::data, How::full, How::full_kept, How::full_alone}) {
        const bool variant = how == How::full_kept || how == How::full_alone;
        if (variant && (on.axes.front() != "dp" || on.shape.back() != 2)) continue;
        const int64_t ranks = c10::multiply_integers(on.shape);
        spawn(static_cast<int>(ranks), [&, dtype = dtype, bound = bound](World&) {
          const DeviceMesh mesh = init_device_mesh("cpu", on.shape, on.axes);
          Gpt model = made(make, dtype);
          if (mesh.mesh().find_axis("tp")) {
            parallelize_module(model, mesh["tp"], tensor_parallel_plan());
          }
          const DeviceMesh data = mesh[on.data];
          const GradientSyncHandle sync = parallel(model, data, how);
          const Curve got = train(model, [&](Gpt& module, int step) {
            const Batch batch = corpus.batch(step, 4, 16);
            Placements rows(static_cast<size_t>(data.ndim()), Shard(0));
            return module->loss(distribute_tensor(batch.inputs, data, rows),
                                distribute_tensor(batch.targets, data, rows));
          });
          expect_same(got, expected, bound, std::string(name_of(how)) + " on " + to_string(mesh));
        });
      }
    }
  }
}

// Batch norms see the whole batch.
TEST(DataParallel, AResNetTrainsAsOnOneDevice) {
  const auto images = [](int step) {
    return torch::arange(6 * 3 * 8 * 8, torch::kDouble).mul(0.7).add(step).sin().view({6, 3, 8, 8});
  };
  const auto classes = [](int step) { return (torch::arange(6) * 7 + step).remainder(5); };
  const auto make = [] { return ResNet(ResNetConfig{.width = 4, .classes = 5}); };
  ResNet alone = made(make, at::kDouble);
  const Curve expected = train(
      alone, [&](ResNet& model, int step) { return torch::cross_entropy_loss(model(images(step)), classes(step)); });
  for (const int ranks : {2, 3}) {
    for (const How how : {How::data, How::full}) {
      spawn(ranks, [&](World&) {
        const DeviceMesh mesh = init_device_mesh("cpu", {ranks}, {"dp"});
        ResNet model = made(make, at::kDouble);
        const GradientSyncHandle sync = parallel(model, mesh, how);
        const Curve got = train(model, [&](ResNet& module, int step) {
          return torch::cross_entropy_loss(module(distribute_tensor(images(step), mesh, {Shard(0)})),
                                           distribute_tensor(classes(step), mesh, {Shard(0)}));
        });
        expect_same(got, expected, 1e-10, std::string(name_of(how)) + " on " + std::to_string(ranks));
        for (size_t i = 0; i < alone->buffers().size(); ++i) {
          EXPECT_TRUE(torch::allclose(whole(model->buffers()[i]), alone->buffers()[i], 1e-9, 1e-9)) << i;
        }
      });
    }
  }
}

nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 4));
}

Tensor rows(int64_t n, int64_t salt) {
  return torch::arange(n * 8, torch::kDouble).mul(0.3).add(static_cast<double>(salt)).cos().view({n, 8});
}

TEST(DataParallel, GradientsOfSeveralPassesAddUp) {
  nn::Sequential alone = made(mlp, at::kDouble);
  for (int pass = 0; pass < 3; ++pass) alone->forward(rows(4, pass)).pow(2).mean().backward();
  for (const How how : {How::data, How::full}) {
    for (const int syncing : {0, 1, 2}) {  // no pass but the last, every pass, the first and the last
      spawn(2, [&](World&) {
        const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
        nn::Sequential model = made(mlp, at::kDouble);
        const GradientSyncHandle sync = parallel(model, mesh, how);
        const auto pass = [&](int number) {
          model->forward(distribute_tensor(rows(4, number), mesh, {Shard(0)})).pow(2).mean().backward();
        };
        for (int number = 0; number < 3; ++number) {
          const bool waits = number < 2 && (syncing == 0 || (syncing == 2 && number == 1));
          if (waits) {
            const auto guard = sync.no_sync();
            CommRecorder recorder;
            pass(number);
            if (how == How::data && syncing == 0) {
              for (const CollectiveCall& call : recorder.calls())
                EXPECT_NE(call.name, "all_reduce") << "gradients moved";
            }
          } else {
            pass(number);
          }
        }
        for (size_t i = 0; i < model->parameters().size(); ++i) {
          const Tensor grad = model->parameters()[i].grad();
          EXPECT_EQ(placements_of(grad), placements_of(model->parameters()[i]));
          EXPECT_TRUE(torch::allclose(full_tensor(grad), alone->parameters()[i].grad(), 1e-10, 1e-10))
              << name_of(how) << " " << syncing << " " << i;
        }
      });
    }
  }
}

TEST(DataParallel, ParametersThatAreNotUsedKeepNoGradient) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    for (const How how : {How::data, How::full}) {
      nn::Sequential model = made(mlp, at::kDouble);
      const GradientSyncHandle sync = parallel(model, mesh, how);
      for (int pass = 0; pass < 2; ++pass) {
        model[0]->as<nn::Linear>()->forward(distribute_tensor(rows(4, pass), mesh, {Shard(0)})).sum().backward();
      }
      EXPECT_TRUE(model->parameters()[0].grad().defined());
      EXPECT_EQ(placements_of(model->parameters()[0].grad()), placements_of(model->parameters()[0]));
      EXPECT_FALSE(model->parameters()[2].grad().defined());
    }
  });
}

TEST(DataParallel, APassThatFailsDoesNotSpoilTheNext) {
  nn::Sequential alone = made(mlp, at::kDouble);
  alone->forward(rows(4, 1)).pow(2).mean().backward();
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    for (const How how : {How::data, How::full}) {
      nn::Sequential model = made(mlp, at::kDouble);
      const GradientSyncHandle sync = parallel(model, mesh, how);
      Tensor middle = model[0]->as<nn::Linear>()->forward(distribute_tensor(rows(4, 0), mesh, {Shard(0)}));
      middle.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
      const Tensor end = model[4]->as<nn::Linear>()->forward(torch::relu(model[2]->as<nn::Linear>()->forward(middle)));
      EXPECT_THROW(end.sum().backward(), std::runtime_error);
      model->zero_grad();
      model->forward(distribute_tensor(rows(4, 1), mesh, {Shard(0)})).pow(2).mean().backward();
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        EXPECT_TRUE(torch::allclose(whole(model->parameters()[i].grad()), alone->parameters()[i].grad(), 1e-10, 1e-10));
      }
    }
  });
}

TEST(DataParallel, TheFirstRanksParametersCount) {
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    for (const How how : {How::data, How::full}) {
      nn::Sequential model = made(mlp, at::kDouble);
      const Tensor first = model->parameters()[0].detach().clone();
      if (world.rank() == 1) {
        const torch::NoGradGuard no_grad;
        model->parameters()[0].zero_();
      }
      parallel(model, mesh, how);
      EXPECT_TRUE(full_tensor(model->parameters()[0]).equal(first));
    }
  });
}

TEST(FullyShard, InferenceUsesTheWeightsOfTheMoment) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    for (const How how : {How::full, How::full_kept}) {
      nn::Sequential alone = made(mlp, at::kDouble);
      nn::Sequential model = made(mlp, at::kDouble);
      parallel(model, mesh, how);
      for (int round = 0; round < 3; ++round) {
        for (const bool grad : {false, true}) {
          const c10::AutoGradMode mode(grad);
          const Tensor got = model->forward(distribute_tensor(rows(3, round), mesh, {Shard(0)}));
          EXPECT_TRUE(torch::allclose(full_tensor(got), alone->forward(rows(3, round)), 1e-10, 1e-10)) << round << grad;
        }
        const torch::NoGradGuard no_grad;
        for (const Tensor& parameter : alone->parameters()) parameter.mul_(0.9);
        for (const Tensor& parameter : model->parameters()) parameter.mul_(0.9);
      }
    }
  });
}

TEST(FullyShard, ParametersAreUsedInTheTypeAskedFor) {
  const auto low = [](nn::Sequential& model, const Tensor& x) {
    return model->forward(x.to(at::kBFloat16)).to(at::kFloat);
  };
  for (const int ranks : {1, 2}) {
    spawn(ranks, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {ranks}, {"dp"});
      nn::Sequential model = made(mlp, at::kFloat);
      nn::Sequential plain = made(mlp, at::kBFloat16);
      fully_shard(model, mesh, {.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}});
      const Tensor x = rows(4, 0).to(at::kFloat);
      const Tensor expected = low(plain, x);
      expected.sum().backward();
      const Tensor got = low(model, distribute_tensor(x, mesh, {Shard(0)}));
      got.sum().backward();
      EXPECT_TRUE(torch::allclose(full_tensor(got), expected, 1e-2, 1e-2));
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        const Tensor grad = model->parameters()[i].grad();
        EXPECT_EQ(grad.scalar_type(), at::kFloat);
        EXPECT_EQ(placements_of(grad), placements_of(model->parameters()[i]));
        EXPECT_TRUE(torch::allclose(full_tensor(grad), plain->parameters()[i].grad().to(at::kFloat), 2e-2, 2e-2)) << i;
      }
    });
  }
}

TEST(FullyShard, AModelThatIsBornShardedIsThere) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    manual_seed(7);
    nn::Sequential model = [&] {
      const ShardedInit guard(mesh);
      return nn::Sequential(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::Linear(16, 4));
    }();
    std::vector<Tensor> drawn;
    for (const Tensor& parameter : model->parameters()) drawn.push_back(full_tensor(parameter.detach()).clone());
    fully_shard(model, mesh);
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_EQ(placements_of(model->parameters()[i]), Placements{Shard(0)});
      EXPECT_TRUE(full_tensor(model->parameters()[i]).equal(drawn[i]));
    }
    EXPECT_EQ(placements_of(model->named_buffers()["1.running_mean"]), Placements{Replicate()});
    const Tensor x = distribute_tensor(rows(6, 0).to(at::kFloat), mesh, {Shard(0)});
    model->forward(x).pow(2).mean().backward();
    EXPECT_EQ(placements_of(model->parameters()[0].grad()), Placements{Shard(0)});
  });
}

// With gradients and without: a model for inference has no hooks that hold what gathers its parameters.
TEST(FullyShard, AModelThatIsDroppedFreesItsParameters) {
  for (const bool trains : {true, false}) {
    spawn(2, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
      std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> parts;
      {
        auto model = made([] { return nn::Sequential(nn::Linear(4, 6), nn::Linear(6, 3)); }, torch::kDouble);
        for (const Tensor& parameter : model->parameters()) parameter.requires_grad_(trains);
        fully_shard(model, mesh);
        const Tensor output = model->forward(distribute_tensor(torch::ones({4, 4}, torch::kDouble), mesh, {Shard(0)}));
        if (trains) output.sum().backward();
        for (const Tensor& parameter : model->parameters())
          parts.emplace_back(to_local(parameter.detach()).storage().getWeakStorageImpl());
        for (const auto& part : parts) EXPECT_FALSE(part.expired());
      }
      for (const auto& part : parts) EXPECT_TRUE(part.expired()) << (trains ? "trained" : "used");
    });
  }
}

// Between its uses a rank has its part of every parameter alone, of the gradients and of the optimizer's state too.
TEST(FullyShard, WhatARankKeepsIsItsPart) {
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"dp"});
    nn::Sequential model = made(mlp, at::kDouble);
    parallel(model, mesh, How::full);
    torch::optim::AdamW optimizer(model->parameters());
    model->forward(distribute_tensor(rows(8, 0), mesh, {Shard(0)})).sum().backward();
    optimizer.step();
    for (const Tensor& parameter : model->parameters()) {
      EXPECT_EQ(placements_of(parameter), Placements{Shard(0)});
      EXPECT_EQ(placements_of(parameter.grad()), Placements{Shard(0)});
      EXPECT_LE(to_local(parameter.detach()).numel(), (parameter.numel() + 3) / 4);
    }
    for (const auto& [key, state] : optimizer.state()) {
      const auto& adam = static_cast<const torch::optim::AdamWParamState&>(*state);
      EXPECT_EQ(placements_of(adam.exp_avg()), Placements{Shard(0)});
    }
  });
}

}  // namespace
}  // namespace sherd::testing
