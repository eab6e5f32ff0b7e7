#include "sherd/fused_step.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tensor/meta.h"

namespace sherd {
namespace {

using at::Tensor;
namespace optim = torch::optim;

// This rank's part of a DTensor, which may rest in the host's memory; a plain tensor itself.
const Tensor& held(const Tensor& tensor) {
  const detail::DTensorMeta* meta = detail::meta_of(tensor);
  return meta != nullptr ? meta->local : tensor;
}

// Kernels go through memory from end to end: what belongs together must lie alike.
bool lie_alike(const Tensor& a, const Tensor& b) {
  const detail::DTensorMeta* of_a = detail::meta_of(a);
  const detail::DTensorMeta* of_b = detail::meta_of(b);
  if ((of_a == nullptr) != (of_b == nullptr)) return false;
  if (of_a != nullptr && !(of_a->spec->mesh == of_b->spec->mesh && of_a->spec->placements == of_b->spec->placements))
    return false;
  return a.scalar_type() == b.scalar_type() && held(a).sizes() == held(b).sizes() &&
         held(a).strides() == held(b).strides();
}

bool has_kernel(const Tensor& parameter) {
  const Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return true;
  return (parameter.is_cpu() || parameter.is_cuda()) && parameter.is_floating_point() &&
         gradient.layout() == c10::kStrided && held(parameter).is_non_overlapping_and_dense() &&
         lie_alike(parameter, gradient);
}

// State may have come from elsewhere, from a file say, and lie otherwise than what it belongs to.
Tensor laid_like(const Tensor& parameter, const Tensor& moment) {
  if (lie_alike(parameter, moment)) return moment;
  return at::empty_like(parameter, at::MemoryFormat::Preserve).copy_(moment);
}

// What one call of a kernel works on.
struct Together {
  // That each of them has taken, this one included: Adam's corrections depend on it. To SGD the first alone matters.
  int64_t steps = 0;
  std::vector<Tensor> parameters, gradients, first, second, largest;
};

// The lists to which a parameter belongs: those of its device, dtype and steps.
Together& lists_for(std::vector<Together>& all, const Tensor& parameter, int64_t steps) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Together& each) {
    const Tensor& known = each.parameters.front();
    return each.steps == steps && held(known).device() == held(parameter).device() &&
           known.scalar_type() == parameter.scalar_type();
  });
  Together& lists = found != all.end() ? *found : all.emplace_back();
  lists.steps = steps;
  lists.parameters.push_back(parameter);
  lists.gradients.push_back(parameter.grad());
  return lists;
}

// The optimizer's state of a parameter, made by `make` before its first step.
template <class State, class Make>
State& state_of(optim::Optimizer& optimizer, const Tensor& parameter, const Make& make) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>(make());
  return static_cast<State&>(*state);
}

template <class Options, class State>
void step_adam(optim::Optimizer& optimizer, const optim::OptimizerParamGroup& group) {
  const auto& options = static_cast<const Options&>(group.options());
  std::vector<Together> all;
  for (const Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    auto& state = state_of<State>(optimizer, parameter, [&] {
      State fresh;
      fresh.exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      fresh.exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      if (options.amsgrad()) fresh.max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      return fresh;
    });
    state.step(state.step() + 1);
    state.exp_avg(laid_like(parameter, state.exp_avg()));
    state.exp_avg_sq(laid_like(parameter, state.exp_avg_sq()));
    Together& lists = lists_for(all, parameter, state.step());
    lists.first.push_back(state.exp_avg());
    lists.second.push_back(state.exp_avg_sq());
    if (!options.amsgrad()) continue;
    state.max_exp_avg_sq(laid_like(parameter, state.max_exp_avg_sq()));
    lists.largest.push_back(state.max_exp_avg_sq());
  }
  const auto [beta1, beta2] = options.betas();
  for (const Together& each : all) {
    const Tensor steps =
        at::full({}, each.steps, at::TensorOptions(at::kFloat).device(held(each.parameters[0]).device()));
    const std::vector<Tensor> counts(each.parameters.size(), steps);
    const auto kernel = [](auto&&... arguments) {
      if constexpr (std::is_same_v<Options, optim::AdamWOptions>) {
        at::_fused_adamw_(arguments...);
      } else {
        at::_fused_adam_(arguments...);
      }
    };
    kernel(each.parameters, each.gradients, each.first, each.second, each.largest, counts, options.lr(), beta1, beta2,
           options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
  }
}

void step_sgd(optim::Optimizer& optimizer, const optim::OptimizerParamGroup& group) {
  const auto& options = static_cast<const optim::SGDOptions&>(group.options());
  const bool has_momentum = options.momentum() != 0;
  std::vector<Together> all;
  for (const Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    if (!has_momentum) {
      lists_for(all, parameter, 0);
      continue;
    }
    // The first step takes the gradient for the momentum there was: a step of its own kind.
    const bool is_first = optimizer.state().count(parameter.unsafeGetTensorImpl()) == 0;
    auto& state = state_of<optim::SGDParamState>(optimizer, parameter, [&] {
      optim::SGDParamState fresh;
      fresh.momentum_buffer(at::empty_like(parameter, at::MemoryFormat::Preserve));
      return fresh;
    });
    state.momentum_buffer(laid_like(parameter, state.momentum_buffer()));
    lists_for(all, parameter, is_first ? 1 : 2).first.push_back(state.momentum_buffer());
  }
  for (const Together& each : all) {
    at::_fused_sgd_(each.parameters, each.gradients, each.first, options.weight_decay(), options.momentum(),
                    options.lr(), options.dampening(), options.nesterov(), /*maximize=*/false,
                    /*is_first_step=*/each.steps == 1);
  }
}

using StepGroup = void (*)(optim::Optimizer&, const optim::OptimizerParamGroup&);

StepGroup step_for(const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr)
    return step_adam<optim::AdamWOptions, optim::AdamWParamState>;
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr)
    return step_adam<optim::AdamOptions, optim::AdamParamState>;
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) return step_sgd;
  return nullptr;
}

}  // namespace

bool fused_step(optim::Optimizer& optimizer) {
  const StepGroup step_group = step_for(optimizer);
  const auto& groups = optimizer.param_groups();
  const bool can_fuse = step_group != nullptr && std::all_of(groups.begin(), groups.end(), [](const auto& group) {
                          return std::all_of(group.params().begin(), group.params().end(), has_kernel);
                        });
  if (!can_fuse) {
    optimizer.step();
    return false;
  }
  const c10::NoGradGuard no_grad;
  for (const auto& group : groups) step_group(optimizer, group);
  return true;
}

}  // namespace sherd
