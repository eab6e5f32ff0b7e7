#pragma once
// Scaling losses so that gradients in half precision do not vanish, as torch.amp.GradScaler does in Python.

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sherd/group.h"

namespace sherd {

struct GradScalerOptions {
  double init_scale = 65536;
  /// What the scale is multiplied with after `growth_interval` steps in a row without an infinity or a NaN ...
  double growth_factor = 2;
  /// ... and after a step with one.
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  /// False: scale() returns what it is given, step() steps, and the rest does nothing.
  bool enabled = true;
  /// Groups whose ranks hold different parameters (the stages of a pipeline): all of them step, or none does.
  std::vector<Group> across = {};
};

///   sherd::GradScaler scaler;
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);                  // only where gradients are looked at before the step, to clip them
///   sherd::clip_grad_norm_(parameters, 1.0);
///   scaler.step(optimizer);                      // skipped where a gradient is not finite
///   scaler.update();
///
/// Gradients may be DTensors of any placements and meshes, and plain tensors. Whether one of them is not finite is
/// agreed upon by the ranks, with one all_reduce of one number for each mesh, so that all step or none does and all
/// have the same scale.
class GradScaler {
 public:
  /// Throws c10::ValueError for factors that do not grow or do not shrink.
  explicit GradScaler(GradScalerOptions options = {});

  /// The tensor times the scale: to call backward() on.
  at::Tensor scale(const at::Tensor& output);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  /// Divides the gradients of the optimizer's parameters by the scale, in place. Throws c10::Error where that was done
  /// since the last update(), and for gradients in float16: keep parameters in float32 and use autocast.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps, unless a gradient is not finite; whether it did. Unscales first where that was not done. Throws c10::Error
  /// where the optimizer stepped since the last update(), or has no gradient. For optimizers that need no closure:
  /// LBFGS evaluates several times per step.
  bool step(torch::optim::Optimizer& optimizer);

  /// To be called once after the steps of an iteration: adapts the scale, or sets it to `new_scale`.
  void update(std::optional<double> new_scale = {});

  double current_scale() const;
  bool is_enabled() const { return options_.enabled; }

  /// What goes into a checkpoint, and back; the factors are the constructor's.
  struct State {
    double scale = 0;
    int64_t growth_tracker = 0;
  };
  State state() const;
  void set_state(const State& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct Progress {
    Stage stage = Stage::ready;
    at::Tensor found_inf;  // one number: 1 where a gradient is not finite
  };
  at::Tensor scale_on(c10::Device device) const;

  GradScalerOptions options_;
  at::Tensor scale_;           // one float
  at::Tensor growth_tracker_;  // one int
  std::map<torch::optim::Optimizer*, Progress> optimizers_;
};

}  // namespace sherd
