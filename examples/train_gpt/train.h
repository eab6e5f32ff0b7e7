#pragma once
// Training, alone or sharded: the same model and the same loop. What differs is where the tensors lie.

#include <optional>
#include <string>
#include <vector>

#include "corpus.h"
#include "gpt.h"
#include "sherd/device_mesh.h"
#include "sherd/placement.h"
#include "sherd/state_dict.h"

struct TrainOptions {
  GptConfig model;
  int64_t batch = 8;
  double learning_rate = 1e-3;
  int64_t warmup = 0;  // steps over which the learning rate grows to that
  /// The largest norm that all gradients together may have; longer ones are scaled down. Nothing: they are left alone.
  std::optional<double> clip = {};
  at::ScalarType dtype = at::kFloat;
  uint64_t seed = kSeed;  // of the weights and of the batches
  /// Whether axis dp cuts the parameters too, and not the batch alone.
  bool fully_sharded = false;
  /// Whether parameters are used in bfloat16, where they are fully sharded. They and the optimizer keep their own type.
  bool uses_bfloat16 = false;
};

/// A model whose weights follow from the seed alone. Draws from torch's generator, which the threads of a program
/// share: call it from one.
Gpt make_model(const TrainOptions& options);

/// A model of its own with the same weights. Draws numbers too, and forgets them.
Gpt copy_model(const Gpt& model, const TrainOptions& options);

/// How a parameter lies on the mesh. Axis tp cuts the attention by heads and the hidden layer of the MLP by columns
/// (Megatron's scheme: two all-reduces per block and direction); every other axis holds all of it.
sherd::Placements parameter_placements(const sherd::Mesh& mesh, const std::string& name);

/// How a batch lies on the mesh: axis dp cuts its rows.
sherd::Placements batch_placements(const sherd::Mesh& mesh);

class Trainer {
 public:
  /// Trains `model` in place: on one device, or sharded over a mesh. Every rank of the mesh makes the same calls.
  Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, at::Device device);
  Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, const sherd::DeviceMesh& mesh);

  /// One step of AdamW on the next batch. Returns the loss before it, on every rank the same.
  double step() { return value_of(advance()); }
  /// The same in two: the step, and reading its loss, which needs the other ranks.
  at::Tensor advance();
  static double value_of(const at::Tensor& loss);
  /// The norm of the last step's gradients before they were clipped, where they are.
  double gradient_norm() const { return gradient_norm_.item<double>(); }
  /// How many were made, before this program too.
  int64_t steps() const { return steps_; }

  Gpt& model() { return model_; }

  /// All that the next steps depend on, for a checkpoint: its tensors are the trainer's own. Once a checkpoint was
  /// loaded into it, go_on_from() takes the rest of it. The mesh may be another than the one that saved.
  sherd::StateDict state();
  void go_on_from(const sherd::StateDict& state);

 private:
  void set_learning_rate();
  at::Tensor placed(const at::Tensor& rows) const;

  Gpt model_;
  const Corpus& corpus_;
  TrainOptions options_;
  at::Device device_;
  std::optional<sherd::DeviceMesh> mesh_;
  torch::optim::AdamW optimizer_;
  at::Tensor gradient_norm_;
  int64_t steps_ = 0;
};

/// |a - b| / |b| at every step.
std::vector<double> relative_differences(const std::vector<double>& a, const std::vector<double>& b);
