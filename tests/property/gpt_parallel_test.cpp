// The demo's GPT with its sequence over one axis, or its blocks over another, beside data and tensor parallelism: the
// losses of one rank over 20 steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sherd/sherd.h"
#include "train.h"

namespace {

using at::Tensor;
using sherd::Placement;
using sherd::Placements;

constexpr int kSteps = 20;

TrainOptions options_for(const Corpus& corpus, at::ScalarType dtype) {
  return {.model = {.vocabulary = corpus.vocabulary(), .layers = 2, .width = 32, .heads = 4, .length = 16},
          .batch = 4,
          .dtype = dtype};
}

torch::optim::AdamW optimizer_for(const Gpt& model, const TrainOptions& options) {
  return torch::optim::AdamW(model->parameters(), torch::optim::AdamWOptions(options.learning_rate).weight_decay(0.01));
}

std::vector<Gpt> copies_of(const Gpt& model, const TrainOptions& options, int64_t count) {
  std::vector<Gpt> copies;
  for (int64_t rank = 0; rank < count; ++rank) copies.push_back(copy_model(model, options));
  return copies;
}

// What one rank finds.
struct Alone {
  Corpus corpus{kText};
  TrainOptions options;
  Gpt model;
  std::vector<double> losses;
  explicit Alone(at::ScalarType dtype) : options(options_for(corpus, dtype)), model(make_model(options)) {
    Gpt copy = copy_model(model, options);
    Trainer trainer(copy, corpus, options, at::kCPU);
    for (int step = 0; step < kSteps; ++step) losses.push_back(trainer.step());
  }
};

struct Case {
  at::ScalarType dtype;
  double bound;
};
class GptParallelTest : public testing::TestWithParam<Case> {};

TEST_P(GptParallelTest, TheSequenceOverAnAxis) {
  using Method = sherd::ContextParallelOptions::Method;
  const Alone alone(GetParam().dtype);
  struct How {
    const char* mesh;
    Method method;
    bool balanced;
  };
  for (const auto& [text, method, balanced] :
       {How{"[cp=2]", Method::ring, false}, How{"[cp=4]", Method::ring, true}, How{"[cp=3]", Method::ring, false},
        How{"[cp=4]", Method::all_to_all, true}, How{"[dp=2, cp=2]", Method::ring, true},
        How{"[dp=2, cp=2, tp=2]", Method::ring, true}, How{"[dp=2, cp=2, tp=2]", Method::all_to_all, false}}) {
    SCOPED_TRACE(text);
    const sherd::Mesh ranks = sherd::parse_mesh(text);
    std::vector<Gpt> copies = copies_of(alone.model, alone.options, ranks.size());
    std::vector<double> losses;
    sherd::spawn(static_cast<int>(ranks.size()), [&, chosen = method, even = balanced](sherd::World& world) {
      const sherd::DeviceMesh mesh("cpu", ranks);
      Gpt& model = copies[static_cast<size_t>(world.rank())];
      auto optimizer = optimizer_for(model, alone.options);
      sherd::distribute_module(
          model, mesh, [&](const std::string& name, const Tensor&) { return parameter_placements(ranks, name); });
      Placements cut = batch_placements(ranks);
      const int64_t cp = ranks.axis("cp");
      cut[static_cast<size_t>(cp)] =
          even ? sherd::balanced_shard(1, alone.options.model.length, ranks.size(cp)) : Placement(sherd::Shard(1));
      const auto placed = [&](const Tensor& rows) {
        return sherd::distribute_tensor(rows, mesh, cut, {.source = std::nullopt});
      };
      const sherd::ContextParallel scope(mesh["cp"], {.method = chosen});
      for (int step = 0; step < kSteps; ++step) {
        const Batch batch = alone.corpus.batch(step, alone.options.batch, alone.options.model.length);
        optimizer.zero_grad();
        const Tensor loss = model->loss(placed(batch.inputs), placed(batch.targets));
        loss.backward();
        optimizer.step();
        const double value = sherd::full_tensor(loss.detach()).item<double>();
        if (world.rank() == 0) losses.push_back(value);
      }
    });
    EXPECT_THAT(relative_differences(losses, alone.losses), testing::Each(testing::Le(GetParam().bound)));
  }
}

// The parts of a GPT that stage `stage` of two runs: all of it is there, and what a stage does not use stays still.
sherd::Pipeline::Stage stage_of(const Gpt& model, int64_t stage) {
  const auto parts = model->named_children();
  const auto blocks = parts["blocks"];
  const auto block = [blocks](int64_t i, const Tensor& x) {
    return blocks->children()[static_cast<size_t>(i)]->as<Block>()->forward(x);
  };
  if (stage == 0) {
    return [=](const Tensor& characters) {
      const Tensor places = torch::arange(characters.size(1));
      const Tensor x = parts["tokens"]->as<torch::nn::Embedding>()->forward(characters) +
                       parts["positions"]->as<torch::nn::Embedding>()->forward(places);
      return block(0, x);
    };
  }
  return [=](const Tensor& x) {
    const Tensor y = parts["norm"]->as<torch::nn::LayerNorm>()->forward(block(1, x));
    return parts["head"]->as<torch::nn::Linear>()->forward(y);
  };
}

TEST_P(GptParallelTest, BlocksOverAnAxis) {
  const Alone alone(GetParam().dtype);
  for (const char* text : {"[pp=2]", "[pp=2, dp=2]", "[pp=2, dp=2, tp=2]"}) {
    SCOPED_TRACE(text);
    const sherd::Mesh ranks = sherd::parse_mesh(text);
    std::vector<Gpt> copies = copies_of(alone.model, alone.options, ranks.size());
    std::vector<double> losses;
    sherd::spawn(static_cast<int>(ranks.size()), [&](sherd::World& world) {
      const sherd::DeviceMesh mesh("cpu", ranks);
      Gpt& model = copies[static_cast<size_t>(world.rank())];
      auto optimizer = optimizer_for(model, alone.options);
      std::optional<sherd::DeviceMesh> own;
      if (ranks.ndim() == 2) own = mesh["dp"];
      if (ranks.ndim() == 3) own = mesh[{"dp", "tp"}];
      if (own) {
        sherd::distribute_module(model, *own, [&](const std::string& name, const Tensor&) {
          return parameter_placements(own->mesh(), name);
        });
      }
      const auto placed = [&](const Tensor& rows) {
        if (!own) return rows;
        return sherd::distribute_tensor(rows, *own, batch_placements(own->mesh()), {.source = std::nullopt});
      };
      sherd::Pipeline pipeline(stage_of(model, mesh.local_rank("pp")), mesh["pp"], {.microbatches = 2});
      for (int step = 0; step < kSteps; ++step) {
        const Batch batch = alone.corpus.batch(step, alone.options.batch, alone.options.model.length);
        optimizer.zero_grad();
        const Tensor loss =
            pipeline.step(placed(batch.inputs), placed(batch.targets), [](const Tensor& logits, const Tensor& targets) {
              return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
            });
        optimizer.step();
        if (world.rank() == 0) losses.push_back(loss.item<double>());
      }
    });
    EXPECT_THAT(relative_differences(losses, alone.losses), testing::Each(testing::Le(GetParam().bound)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GptParallelTest, testing::Values(Case{at::kDouble, 1e-10}, Case{at::kFloat, 1e-4}),
                         [](const auto& each) { return each.param.dtype == at::kDouble ? "Float64" : "Float32"; });

}  // namespace
