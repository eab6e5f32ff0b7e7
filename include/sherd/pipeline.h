#pragma once
// A model in stages, one for each rank of a mesh axis; the batch goes through them in microbatches.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sherd/device_mesh.h"

namespace sherd {

enum class Schedule : uint8_t {
  /// All forwards, then all backwards: every microbatch's activations are alive at once.
  GPipe,
  /// One forward, one backward, as soon as a backward can run: stage i of n keeps the activations of at most n - i
  /// microbatches.
  OneFOneB,
};

struct PipelineAction {
  enum class Kind : uint8_t { forward, backward };
  Kind kind = Kind::forward;
  int64_t microbatch = 0;
  bool operator==(const PipelineAction&) const = default;
};

/// What stage `stage` of `stages` does, in order. A forward needs that of the stage before it, a backward that of the
/// stage after it; run with messages that do not block their sender, the lists never wait for each other in a circle.
std::vector<PipelineAction> schedule_actions(Schedule schedule, int64_t stages, int64_t stage, int64_t microbatches);

struct PipelineOptions {
  Schedule schedule = Schedule::OneFOneB;
  int64_t microbatches = 1;
};

/// This rank's stage of a model. The stages stand in the order of the axis; each is any function of a tensor, a module
/// of torch::nn among them: Pipeline pipeline(block, mesh["pp"], {.microbatches = 8}).
///
/// What goes from stage to stage is one tensor, plain or a DTensor on other axes of the root mesh (mesh[{"dp", "tp"}]):
/// each rank sends its own part to its neighbour along the axis, where it is a DTensor of that rank's mesh.
///
/// Every rank of the axis makes the same calls. Where the stage or the loss throws on a rank, the ranks that wait for
/// it fail with its message; the world cannot be used after that.
class Pipeline {
 public:
  using Stage = std::function<at::Tensor(const at::Tensor& input)>;
  /// The mean over a microbatch, as a tensor of one element.
  using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

  Pipeline(Stage stage, const DeviceMesh& axis, const PipelineOptions& options = {});
  /// A module of torch::nn (its holder), also one whose forward is a template: Sequential; and an AnyModule.
  template <class Module>
  requires requires(Module& module, const at::Tensor& input) { module->forward(input); }
  Pipeline(Module module, const DeviceMesh& axis, const PipelineOptions& options = {})
      : Pipeline(Stage([module](const at::Tensor& input) mutable -> at::Tensor { return module->forward(input); }),
                 axis, options) {}
  template <class Module>
  requires requires(Module& module, const at::Tensor& input) { module.forward(input); }
  Pipeline(Module module, const DeviceMesh& axis, const PipelineOptions& options = {})
      : Pipeline(Stage([module](const at::Tensor& input) mutable -> at::Tensor { return module.forward(input); }), axis,
                 options) {}
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// Forward and backward of a batch; gradients are added to those that the parameters have. `input` counts on the
  /// first rank and `target` on the last; elsewhere they may be undefined. Both are cut along dim 0, a DTensor's part
  /// on each rank. Returns the mean loss, on every rank, without gradient. Throws c10::ValueError on every rank where
  /// the batch does not divide into microbatches.
  at::Tensor step(const at::Tensor& input, const at::Tensor& target, const Loss& loss);

  /// The output, without gradient, on the last rank; undefined on the others.
  at::Tensor forward(const at::Tensor& input);

  int64_t stage() const;
  int64_t stages() const;
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == stages(); }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sherd
