#include "sherd/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/errors.h"
#include "comm/observer.h"
#include "sherd/collectives.h"
#include "training/gradients.h"

namespace sherd {
namespace {

using at::Tensor;

std::vector<Tensor> gradients_of(torch::optim::Optimizer& optimizer) {
  std::vector<Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return detail::gradients_of(parameters);
}

[[noreturn]] void refuse(const char* operation, const char* problem, const char* help) {
  detail::throw_state_error(ErrorText(std::string("GradScaler::") + operation, problem).help(help));
}

// Gradients that can be worked on together: torch's kernel takes one device and dtype at a time.
std::vector<std::vector<Tensor>> alike(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<Tensor>> lists;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const auto same = [&](const std::vector<Tensor>& list) {
      return list.front().device() == tensor.device() && list.front().scalar_type() == tensor.scalar_type();
    };
    const auto known = std::find_if(lists.begin(), lists.end(), same);
    (known != lists.end() ? *known : lists.emplace_back()).push_back(tensor);
  }
  return lists;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)) {
  const auto require = [](bool right, const char* what, double value, const char* range) {
    if (right) return;
    detail::throw_value_error(ErrorText("GradScaler", fmt::format("{} is out of range", what))
                                  .fact(what, fmt::format("{}", value))
                                  .help(fmt::format("{}, as in sherd::GradScalerOptions()", range)));
  };
  require(options_.init_scale > 0, "init_scale", options_.init_scale, "above 0");
  require(options_.growth_factor > 1, "growth_factor", options_.growth_factor, "above 1");
  require(options_.backoff_factor > 0 && options_.backoff_factor < 1, "backoff_factor", options_.backoff_factor,
          "between 0 and 1");
  require(options_.growth_interval > 0, "growth_interval", static_cast<double>(options_.growth_interval), "above 0");
  scale_ = at::full({}, options_.init_scale, at::TensorOptions(c10::kFloat));
  growth_tracker_ = at::zeros({}, at::TensorOptions(c10::kInt));
}

Tensor GradScaler::scale_on(c10::Device device) const { return scale_.to(device); }

Tensor GradScaler::scale(const Tensor& output) {
  if (!options_.enabled) return output;
  // It follows the losses to their device, and stays there: steps that are not skipped wait for nothing but the flag.
  scale_ = scale_on(output.device());
  growth_tracker_ = growth_tracker_.to(output.device());
  return output * scale_;
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> scaled;
  for (const Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  Progress& progress = optimizers_[&optimizer];
  if (progress.stage == Stage::unscaled) {
    refuse("unscale_", "the gradients were unscaled since the last update()", "unscale_ once, then step, then update");
  }
  if (progress.stage == Stage::stepped) {
    refuse("unscale_", "the optimizer has stepped since the last update()", "scaler.update() after the steps");
  }
  const c10::NoGradGuard no_grad;
  const detail::CauseScope cause("GradScaler");
  const std::vector<Tensor> gradients = gradients_of(optimizer);
  for (const Tensor& gradient : gradients) {
    if (gradient.scalar_type() == c10::kHalf) {
      refuse("unscale_", "a gradient is in float16, in which the scale does not help",
             "keep the parameters in float32 and run the forward pass under autocast");
    }
  }
  Tensor found = at::zeros({}, scale_.options());
  const Tensor inverse = scale_.to(c10::kDouble).reciprocal().to(c10::kFloat);
  for (const detail::HeldGradients& held : detail::by_mesh(gradients)) {
    const c10::Device device = held.mesh ? held.mesh->device() : held.locals.front().device();
    Tensor here = at::zeros({}, found.options().device(device));
    for (const std::vector<Tensor>& list : alike(held.locals)) {
      Tensor flag = at::zeros({}, here.options().device(list.front().device()));
      at::_amp_foreach_non_finite_check_and_unscale_(list, flag, inverse.to(flag.device()));
      here = at::maximum(here, flag.to(here.device()));
    }
    for (size_t i = 0; i < held.gradients.size(); ++i) {
      const Tensor& gradient = held.gradients[i];
      if (held.is_own[i]) {
        detail::note_written(gradient);
      } else {
        gradient.mul_(inverse.to(gradient.device()));
      }
    }
    if (held.mesh && held.mesh->coordinate()) all_reduce(detail::group_of_all(*held.mesh), here, ReduceOp::max).wait();
    found = at::maximum(found, here.to(found.device()));
  }
  for (const Group& group : options_.across) all_reduce(group, found, ReduceOp::max).wait();
  progress = {gradients.empty() ? Stage::ready : Stage::unscaled, found};
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  Progress& progress = optimizers_[&optimizer];
  if (progress.stage == Stage::stepped) {
    refuse("step", "the optimizer has stepped since the last update()", "scaler.update() after the steps");
  }
  if (progress.stage == Stage::ready) unscale_(optimizer);
  if (progress.stage != Stage::unscaled) {
    refuse("step", "no parameter of the optimizer has a gradient", "scaler.scale(loss).backward() before the step");
  }
  const bool finite = progress.found_inf.item<float>() == 0;
  if (finite) optimizer.step();
  progress.stage = Stage::stepped;
  return finite;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    scale_.fill_(*new_scale);
  } else {
    Tensor found;
    for (const auto& [optimizer, progress] : optimizers_) {
      if (!progress.found_inf.defined()) continue;
      const Tensor here = progress.found_inf.to(scale_.device());
      found = found.defined() ? at::maximum(found, here) : here;
    }
    if (!found.defined()) {
      refuse("update", "no optimizer has been unscaled or stepped since the last update()",
             "scaler.step(optimizer) before update()");
    }
    at::_amp_update_scale_(scale_, growth_tracker_, found, options_.growth_factor, options_.backoff_factor,
                           options_.growth_interval);
  }
  optimizers_.clear();
}

double GradScaler::current_scale() const { return options_.enabled ? scale_.item<double>() : 1; }

GradScaler::State GradScaler::state() const { return {scale_.item<double>(), growth_tracker_.item<int64_t>()}; }

void GradScaler::set_state(const State& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace sherd
