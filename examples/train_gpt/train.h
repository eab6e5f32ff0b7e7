#pragma once
// The demo's GPT as something to train (train/training.h), and the same for its sibling with rotary positions.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corpus.h"
#include "gpt.h"
#include "models/rotary_gpt.h"
#include "train/training.h"

struct TrainOptions {
  GptConfig model;
  int64_t batch = 8;
  double learning_rate = 1e-3;
  int64_t warmup = 0;
  std::optional<double> clip = {};
  at::ScalarType dtype = at::kFloat;
  uint64_t seed = kSeed;  // of the weights and of the batches
  bool fully_sharded = false;
  bool uses_bfloat16 = false;
  bool fuses_step = false;
};

/// A model whose weights follow from the seed alone. Draws from torch's generator, which the threads of a program
/// share: call it from one.
Gpt make_model(const TrainOptions& options);
RotaryGpt make_model(const RotaryGptConfig& config, at::ScalarType dtype, uint64_t seed);

/// A model of its own with the same weights. Draws numbers too, and forgets them.
Gpt copy_model(const Gpt& model, const TrainOptions& options);

/// How axis tp holds a parameter of either model: it cuts the attention by heads and the hidden layer of the MLP by
/// columns (Megatron's scheme: two all-reduces per block and direction).
sherd::Placement along_tp(const std::string& name);

/// How a parameter lies on the mesh: along tp as above; every other axis holds all of it.
sherd::Placements parameter_placements(const sherd::Mesh& mesh, const std::string& name);

struct Rows {
  int64_t batch = 8;    // sequences in a step
  int64_t length = 64;  // characters in a sequence
  uint64_t seed = kSeed;
};

/// A model of characters that learns a text.
template <class Model>
class TextTask : public Task {
 public:
  TextTask(Model model, const Corpus& corpus, const Rows& rows)
      : model_(std::move(model)), corpus_(corpus), rows_(rows) {}

  torch::nn::Module& module() override { return *model_; }
  at::Tensor loss(int64_t step, const Place& place) override {
    const Batch batch = corpus_.batch(step, rows_.batch, rows_.length, rows_.seed);
    return model_->loss(place(batch.inputs), place(batch.targets));
  }
  sherd::Placement along_tp(const std::string& name) const override { return ::along_tp(name); }

 private:
  Model model_;
  const Corpus& corpus_;
  Rows rows_;
};

/// The demo's GPT in training.
class Trainer : public Training {
 public:
  Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, at::Device device);
  Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, const sherd::DeviceMesh& mesh);
  Gpt& model() { return model_; }

 private:
  Gpt model_;
};

/// |a - b| / |b| at every step.
std::vector<double> relative_differences(const std::vector<double>& a, const std::vector<double>& b);
