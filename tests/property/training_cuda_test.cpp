// Training on a GPU: four ranks share one and find what it finds alone; parameters that rest in the host's memory; a
// step of DTensors captured in a CUDA graph.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>

#include "gpt.h"
#include "sherd/sherd.h"

#ifdef SHERD_TESTS_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace sherd::testing {
namespace {

using at::Tensor;

constexpr int kSteps = 10;
constexpr GptConfig kModel = {.vocabulary = 23, .layers = 2, .width = 32, .heads = 4, .length = 16};

class TrainingCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
};

std::vector<Gpt> equal_models(int count) {
  std::vector<Gpt> models;
  for (int i = 0; i < count; ++i) {
    torch::manual_seed(11);
    models.emplace_back(kModel);
    models.back()->to(at::kCUDA, torch::kDouble);
  }
  return models;
}

Tensor tokens_at(int step, int64_t more) {
  return torch::arange(4 * kModel.length).mul(7 + step).add(more).remainder(kModel.vocabulary).view({4, -1}).cuda();
}

using Place = std::function<Tensor(const Tensor&)>;

std::vector<double> train(
    Gpt& model, torch::optim::Optimizer& optimizer, const Place& place,
    const std::function<void()>& before_step = [] {}) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = model->loss(place(tokens_at(step, 0)), place(tokens_at(step, 3)));
    loss.backward();
    before_step();
    // One device steps as torch does, ranks as torch does and fused by turns.
    if (is_dtensor(loss) && step % 2 == 1) {
      EXPECT_TRUE(fused_step(optimizer));
    } else {
      optimizer.step();
    }
    losses.push_back((is_dtensor(loss) ? full_tensor(loss.detach()) : loss).item<double>());
  }
  return losses;
}

torch::optim::AdamW adamw(const Gpt& model) {
  return torch::optim::AdamW(model->parameters(), torch::optim::AdamWOptions(1e-2));
}

// `prepare` makes a rank's model parallel and returns the mesh that cuts the batch.
void expect_losses_of_one(
    const char* name, const std::vector<int64_t>& shape,
    const std::function<DeviceMesh(Gpt&, const DeviceMesh&)>& prepare,
    const std::function<void(Gpt&)>& before_step = [](Gpt&) {}) {
  SCOPED_TRACE(name);
  std::vector<Gpt> models = equal_models(5);
  auto alone = adamw(models[4]);
  const auto expected = train(models[4], alone, [](const Tensor& x) { return x; });
  EXPECT_LT(expected.back(), expected.front());
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cuda", shape, {"dp", "tp"});
    Gpt& model = models[static_cast<size_t>(world.rank())];
    const DeviceMesh data = prepare(model, mesh);
    auto optimizer = adamw(model);
    const auto losses = train(
        model, optimizer,
        [&](const Tensor& x) { return distribute_tensor(x, data, {Shard(0)}, {.source = std::nullopt}); },
        [&] { before_step(model); });
    for (int step = 0; step < kSteps; ++step) {
      const auto i = static_cast<size_t>(step);
      EXPECT_NEAR(losses[i], expected[i], 1e-10 * expected[i]) << "step " << step << ", rank " << world.rank();
    }
  });
}

ParallelPlan tensor_plan() {
  return {{"blocks.*.attention.query", ColwiseParallel()},
          {"blocks.*.attention.key", ColwiseParallel()},
          {"blocks.*.attention.value", ColwiseParallel()},
          {"blocks.*.attention.out", RowwiseParallel()},
          {"blocks.*.up", ColwiseParallel()},
          {"blocks.*.down", RowwiseParallel()}};
}

TEST_F(TrainingCudaTest, RanksThatShareAGpuFindItsLosses) {
  expect_losses_of_one("data 4", {4, 1}, [](Gpt& model, const DeviceMesh& mesh) {
    data_parallel(model, mesh["dp"]);
    return mesh["dp"];
  });
  expect_losses_of_one("data 2, tensor 2", {2, 2}, [](Gpt& model, const DeviceMesh& mesh) {
    parallelize_module(model, mesh["tp"], tensor_plan());
    data_parallel(model, mesh["dp"]);
    return mesh["dp"];
  });
  expect_losses_of_one("fully sharded 4", {4, 1}, [](Gpt& model, const DeviceMesh& mesh) {
    fully_shard(model, mesh["dp"]);
    return mesh["dp"];
  });
  expect_losses_of_one("fully sharded 2, tensor 2", {2, 2}, [](Gpt& model, const DeviceMesh& mesh) {
    parallelize_module(model, mesh["tp"], tensor_plan());
    fully_shard(model, mesh["dp"], {.reshard_after_forward = false});
    return mesh["dp"];
  });
}

TEST_F(TrainingCudaTest, OffloadedPartsRestInTheHostsMemory) {
  const auto rests_in_host = [](Gpt& model) {
    for (const Tensor& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.is_cuda());
      EXPECT_TRUE(to_local(parameter.detach()).is_cpu());
      EXPECT_TRUE(to_local(parameter.grad()).is_cpu());
      EXPECT_EQ(placements_of(parameter.grad()), placements_of(parameter));
    }
  };
  const auto offloaded = [](Gpt& model, const DeviceMesh& mesh) {
    fully_shard(model, mesh["dp"], {.offload = true});
    return mesh["dp"];
  };
  expect_losses_of_one("fully sharded 4", {4, 1}, offloaded, rests_in_host);
  expect_losses_of_one(
      "fully sharded 2, tensor 2", {2, 2},
      [&](Gpt& model, const DeviceMesh& mesh) {
        parallelize_module(model, mesh["tp"], tensor_plan());
        return offloaded(model, mesh);
      },
      rests_in_host);
}

TEST_F(TrainingCudaTest, OffloadedGradientsAddUp) {
  std::vector<Gpt> models = equal_models(3);
  const auto backward = [](Gpt& model, int step, const Place& place) {
    model->loss(place(tokens_at(step, 0)), place(tokens_at(step, 3))).backward();
  };
  for (int step = 0; step < 4; ++step) backward(models[2], step, [](const Tensor& x) { return x; });
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cuda", {2}, {"dp"});
    Gpt& model = models[static_cast<size_t>(world.rank())];
    const auto sync = fully_shard(model, mesh, {.offload = true});
    const Place place = [&](const Tensor& x) {
      return distribute_tensor(x, mesh, {Shard(0)}, {.source = std::nullopt});
    };
    backward(model, 0, place);
    {
      const auto later = sync.no_sync();
      backward(model, 1, place);
      backward(model, 2, place);
    }
    backward(model, 3, place);
    const auto expected = models[2]->parameters();
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor grad = full_tensor(model->parameters()[i].grad());
      EXPECT_TRUE(torch::allclose(grad.cpu(), expected[i].grad().cpu(), 1e-10, 1e-12)) << "parameter " << i;
    }
    const double norm = clip_grad_norm_(model->parameters(), 1.0).item<double>();
    EXPECT_GT(norm, 0);
  });
}

#ifdef SHERD_TESTS_CUDA
// Where launching kernels takes longer than they do, the step is captured once and played again.
TEST_F(TrainingCudaTest, AStepInACudaGraph) {
  std::vector<Gpt> models = equal_models(2);
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
  torch::optim::SGD alone(models[1]->parameters(), options);
  const auto expected = train(models[1], alone, [](const Tensor& x) { return x; });
  spawn(1, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cuda", {1, 1}, {"dp", "tp"});
    Gpt& model = models[0];
    parallelize_module(model, mesh["tp"], tensor_plan());
    data_parallel(model, mesh["dp"]);
    torch::optim::SGD optimizer(model->parameters(), options);
    const Tensor input = distribute_tensor(tokens_at(0, 0), mesh["dp"], {Shard(0)});
    const Tensor target = distribute_tensor(tokens_at(0, 3), mesh["dp"], {Shard(0)});
    const auto step = [&] {
      optimizer.zero_grad(/*set_to_none=*/false);
      const Tensor loss = model->loss(input, target);
      loss.backward();
      optimizer.step();
      return to_local(loss.detach());
    };
    const auto next_batch = [&](int i) {
      to_local(input).copy_(tokens_at(i, 0));
      to_local(target).copy_(tokens_at(i, 3));
    };
    std::vector<double> losses;
    at::cuda::CUDAGraph graph;
    Tensor captured;
    {
      const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool());
      for (int i = 0; i < 3; ++i) {
        next_batch(i);
        losses.push_back(step().item<double>());
      }
      graph.capture_begin();
      captured = step();
      graph.capture_end();
    }
    torch::cuda::synchronize();
    for (int i = 3; i < kSteps; ++i) {
      next_batch(i);
      graph.replay();
      losses.push_back(captured.item<double>());
    }
    for (int i = 0; i < kSteps; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_NEAR(losses[at], expected[at], 1e-10 * expected[at]) << "step " << i;
    }
  });
}
#endif

}  // namespace
}  // namespace sherd::testing
