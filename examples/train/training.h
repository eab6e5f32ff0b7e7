#pragma once
// Training, alone or sharded: the same model and the same loop, whatever the model. What differs is where the tensors
// lie.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"
#include "sherd/report.h"
#include "sherd/state_dict.h"

/// Puts a tensor of a batch, which every rank has whole, where it is computed with.
using Place = std::function<at::Tensor(const at::Tensor&)>;

/// Something to learn: a model, and a batch for every step.
class Task {
 public:
  virtual ~Task() = default;
  virtual torch::nn::Module& module() = 0;
  /// The loss of the batch of a step. The batch follows from the step alone: the same on every rank.
  virtual at::Tensor loss(int64_t step, const Place& place) = 0;
  /// How axis tp holds the parameter or buffer called `name`, where there is such an axis.
  virtual sherd::Placement along_tp(const std::string& name) const = 0;
};

struct TrainingOptions {
  double learning_rate = 1e-3;
  int64_t warmup = 0;  // steps over which the learning rate grows to that
  /// The largest norm that all gradients together may have; longer ones are scaled down. Nothing: they are left alone.
  std::optional<double> clip = {};
  /// Whether axis dp cuts the parameters too, and not the batch alone.
  bool fully_sharded = false;
  /// Whether parameters are used in bfloat16, where they are fully sharded. They and the optimizer keep their own type.
  bool uses_bfloat16 = false;
  /// Whether the optimizer steps by sherd::fused_step.
  bool fuses_step = false;
};

/// How a batch lies on the mesh: axis dp cuts its rows.
sherd::Placements batch_placements(const sherd::Mesh& mesh);

class Training {
 public:
  /// Trains the task's module in place: on one device, or sharded over a mesh with an axis dp, an axis tp, or both.
  /// Every rank of the mesh makes the same calls.
  Training(std::shared_ptr<Task> task, const TrainingOptions& options, at::Device device);
  Training(std::shared_ptr<Task> task, const TrainingOptions& options, const sherd::DeviceMesh& mesh);

  /// One step of AdamW on the next batch. Returns the loss before it, on every rank the same.
  double step() { return value_of(advance()); }
  /// The same in two: the step, and reading its loss, which needs the other ranks.
  at::Tensor advance();
  static double value_of(const at::Tensor& loss);
  /// The norm of the last step's gradients before they were clipped, where they are.
  double gradient_norm() const { return gradient_norm_.item<double>(); }
  /// How many were made, before this program too.
  int64_t steps() const { return steps_; }

  torch::nn::Module& module() { return task_->module(); }

  /// Parameters, gradients and the optimizer's state, for a chart of memory.
  std::vector<sherd::MemoryPart> memory() const;

  /// All that the next steps depend on, for a checkpoint: its tensors are the training's own. Once a checkpoint was
  /// loaded into it, go_on_from() takes the rest of it. The mesh may be another than the one that saved.
  sherd::StateDict state();
  void go_on_from(const sherd::StateDict& state);

 private:
  void set_learning_rate();
  at::Tensor placed(const at::Tensor& rows) const;

  std::shared_ptr<Task> task_;
  TrainingOptions options_;
  at::Device device_;
  std::optional<sherd::DeviceMesh> mesh_;
  torch::optim::AdamW optimizer_;
  at::Tensor gradient_norm_;
  int64_t steps_ = 0;
};
