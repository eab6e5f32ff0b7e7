// A model in stages has the loss, the gradients and the outputs of the same model on one device.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

// Stage `i` of a model of `stages`: an embedding first, then blocks of growing width.
class StageImpl : public nn::Module {
 public:
  StageImpl(int64_t stage, int64_t stages) {
    if (stage == 0) embedding = register_module("embedding", nn::Embedding(10, 4));
    up = register_module("up", nn::Linear(4 + stage, 8));
    down = register_module("down", nn::Linear(8, stage + 1 == stages ? 10 : 5 + stage));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    int64_t salt = 10 * stage;
    for (const Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++salt));
  }
  Tensor forward(const Tensor& input) {
    const Tensor x = embedding ? embedding(input) : input;
    return down(torch::gelu(up(x)));
  }
  nn::Embedding embedding{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Stage);

const Tensor& input() {
  static const Tensor value = torch::arange(48).mul(7).remainder(10).view({12, 4});
  return value;
}
const Tensor& target() {
  static const Tensor value = torch::arange(48).mul(3).remainder(10).view({12, 4});
  return value;
}
Tensor loss_of(const Tensor& logits, const Tensor& wanted) {
  return nn::functional::cross_entropy(logits.flatten(0, 1), wanted.flatten());
}

// The whole model on this device: what the stages must agree with.
struct Alone {
  std::vector<Stage> stages;
  Tensor output, loss;
  explicit Alone(int64_t count) {
    output = input();
    for (int64_t i = 0; i < count; ++i) {
      stages.emplace_back(i, count);
      output = stages.back()->forward(output);
    }
    loss = loss_of(output, target());
    loss.backward();
  }
};

// Modules draw from the one generator of torch: made before the ranks start.
std::vector<Stage> stages_for(const Mesh& mesh) {
  std::vector<Stage> stages;
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    const Dims at = *mesh.coordinate_of(rank);
    stages.emplace_back(at[static_cast<size_t>(mesh.axis("pp"))], mesh.size(mesh.axis("pp")));
  }
  return stages;
}

void expect_same_grads(Stage& stage, const Stage& alone, double times = 1) {
  const auto expected = alone->named_parameters();
  for (const auto& parameter : stage->named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    const Tensor grad =
        is_dtensor(parameter.value()) ? full_tensor(parameter.value().grad()) : parameter.value().grad();
    EXPECT_LE((grad - times * expected[parameter.key()].grad()).abs().max().item<double>(), 1e-10) << parameter.key();
  }
}

class PipelineTest : public ::testing::TestWithParam<Schedule> {};

TEST_P(PipelineTest, EqualsOneDevice) {
  for (const int64_t count : {1, 2, 3, 4}) {
    for (const int64_t microbatches : {1, 3, 6}) {
      const Alone alone(count);
      const Mesh ranks({{"pp", count}});
      std::vector<Stage> stages = stages_for(ranks);
      spawn(static_cast<int>(count), [&](World& world) {
        SCOPED_TRACE(std::to_string(count) + " stages, " + std::to_string(microbatches) + " microbatches");
        const DeviceMesh mesh("cpu", ranks);
        Stage& stage = stages[static_cast<size_t>(world.rank())];
        Pipeline pipeline(stage, mesh["pp"], {.schedule = GetParam(), .microbatches = microbatches});
        const Tensor in = pipeline.is_first() ? input() : Tensor();
        const Tensor out = pipeline.is_last() ? target() : Tensor();
        const Tensor loss = pipeline.step(in, out, loss_of);
        EXPECT_NEAR(loss.item<double>(), alone.loss.item<double>(), 1e-10);
        EXPECT_FALSE(loss.requires_grad());
        expect_same_grads(stage, alone.stages[static_cast<size_t>(world.rank())]);
        // Gradients add up, and what the stages told each other holds for the next step.
        pipeline.step(in, out, loss_of);
        expect_same_grads(stage, alone.stages[static_cast<size_t>(world.rank())], 2);

        const Tensor output = pipeline.forward(in);
        ASSERT_EQ(output.defined(), pipeline.is_last());
        if (output.defined()) {
          EXPECT_FALSE(output.requires_grad());
          EXPECT_LE((output - alone.output).abs().max().item<double>(), 1e-10);
        }
      });
    }
  }
}

// Stages that are sharded themselves: the batch over dp, the hidden layer over tp.
TEST_P(PipelineTest, StagesOfDTensors) {
  for (const char* text : {"[pp=2, dp=2, tp=2]", "[dp=2, pp=2]", "[pp=3, tp=2]"}) {
    const Mesh ranks = parse_mesh(text);
    const int64_t count = ranks.size(ranks.axis("pp"));
    const Alone alone(count);
    std::vector<Stage> stages = stages_for(ranks);
    spawn(static_cast<int>(ranks.size()), [&](World& world) {
      SCOPED_TRACE(text);
      const DeviceMesh mesh("cpu", ranks);
      std::vector<std::string> others;
      for (const MeshAxis& axis : ranks.axes()) {
        if (axis.name != "pp") others.push_back(axis.name);
      }
      const DeviceMesh own = mesh[others];
      const auto placed = [&](const char* axis, const Placement& p) {
        Placements placements(others.size(), Replicate());
        if (const auto at = own.mesh().find_axis(axis)) placements[static_cast<size_t>(*at)] = p;
        return placements;
      };
      Stage& stage = stages[static_cast<size_t>(world.rank())];
      distribute_module(stage, own, [&](const std::string& name, const Tensor&) {
        if (name == "down.weight") return placed("tp", Shard(1));
        return name.starts_with("up.") ? placed("tp", Shard(0)) : placed("tp", Replicate());
      });
      Pipeline pipeline(stage, mesh["pp"], {.schedule = GetParam(), .microbatches = 3});
      const auto batch = [&](bool wanted, const Tensor& rows) {
        return wanted ? distribute_tensor(rows, own, placed("dp", Shard(0)), {.source = std::nullopt}) : Tensor();
      };
      const Tensor in = batch(pipeline.is_first(), input());
      const Tensor loss = pipeline.step(in, batch(pipeline.is_last(), target()), loss_of);
      EXPECT_NEAR(loss.item<double>(), alone.loss.item<double>(), 1e-10);
      expect_same_grads(stage, alone.stages[static_cast<size_t>(pipeline.stage())]);
      const Tensor output = pipeline.forward(in);
      if (pipeline.is_last()) {
        EXPECT_LE((full_tensor(output) - alone.output).abs().max().item<double>(), 1e-10);
      }
    });
  }
}

TEST_P(PipelineTest, TrainsAsOneDevice) {
  const Mesh ranks({{"pp", 2}});
  const auto optimizer_of = [](const std::vector<Tensor>& parameters) {
    return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(0.01));
  };
  std::vector<double> expected;
  {
    Stage first(0, 2), second(1, 2);
    std::vector<Tensor> parameters = first->parameters();
    for (const Tensor& each : second->parameters()) parameters.push_back(each);
    auto optimizer = optimizer_of(parameters);
    for (int64_t step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const Tensor loss = loss_of(second->forward(first->forward((input() + step).remainder(10))), target());
      loss.backward();
      optimizer.step();
      expected.push_back(loss.item<double>());
    }
  }
  ASSERT_LT(expected.back(), expected.front());
  std::vector<Stage> stages = stages_for(ranks);
  spawn(2, [&](World& world) {
    const DeviceMesh mesh("cpu", ranks);
    Stage& stage = stages[static_cast<size_t>(world.rank())];
    auto optimizer = optimizer_of(stage->parameters());
    Pipeline pipeline(stage, mesh, {.schedule = GetParam(), .microbatches = 4});
    for (int64_t step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const Tensor loss = pipeline.step((input() + step).remainder(10), target(), loss_of);
      optimizer.step();
      EXPECT_NEAR(loss.item<double>(), expected[static_cast<size_t>(step)], 1e-10) << "step " << step;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineTest, ::testing::Values(Schedule::GPipe, Schedule::OneFOneB),
                         [](const auto& each) { return each.param == Schedule::GPipe ? "GPipe" : "OneFOneB"; });

TEST(PipelineMessagesTest, BatchesOfAnotherSizeFollow) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    Pipeline pipeline([](const Tensor& x) { return x * 2; }, mesh, {.microbatches = 2});
    for (const int64_t rows : {4, 8, 2, 8}) {
      const Tensor input = numbers({rows, 3}, rows);
      const Tensor output = pipeline.forward(input);
      if (pipeline.is_last()) {
        EXPECT_TRUE(output.equal(input * 4));
      }
    }
  });
}

TEST(PipelineMessagesTest, AStageIsAnyModule) {
  nn::Sequential layers(nn::Linear(3, 3), nn::ReLU());
  nn::Linear last(3, 2);
  layers->to(torch::kDouble);
  last->to(torch::kDouble);
  const Tensor input = numbers({4, 3}, 1);
  const Tensor expected = last->forward(layers->forward(input)).detach();
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    Pipeline pipeline = world.rank() == 0 ? Pipeline(layers, mesh) : Pipeline(nn::AnyModule(last), mesh);
    const Tensor output = pipeline.forward(input);
    if (pipeline.is_last()) {
      EXPECT_TRUE(output.equal(expected));
    }
  });
}

// Messages are activations and their gradients: nothing that grows with the model.
TEST(PipelineMessagesTest, MovesOneActivationEachWayForEachMicrobatch) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    const Tensor weight = numbers({6, 6}, 1).requires_grad_(true);
    Pipeline pipeline([&](const Tensor& x) { return x.mm(weight); }, mesh, {.microbatches = 4});
    const auto mean = [](const Tensor& out, const Tensor&) { return out.mean(); };
    const Tensor batch = numbers({8, 6}, 2);
    pipeline.step(batch, batch, mean);
    const CommRecorder recorder;
    pipeline.step(batch, batch, mean);
    int64_t received = 0;
    for (const CollectiveCall& call : recorder.calls()) {
      if (call.name == "receive") received += call.bytes;
    }
    EXPECT_EQ(received, 8 * 6 * 8) << recorder.to_string();
  });
}

}  // namespace
}  // namespace sherd::testing
