#include <torch/optim/optimizer.h>

#include "checkpoint/full_state.h"
#include "checkpoint/optimizer_format.h"
#include "checkpoint/saved_optimizer.h"
#include "comm/errors.h"
#include "sherd/model_state.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::OptimizerFormat;
using detail::OptimizerParamState;
using torch::optim::Optimizer;

constexpr const char* kOperation = "get_optimizer_state_dict";

StateDict state_values(const OptimizerFormat& format, detail::OptimizerOptions& options,
                       const OptimizerParamState& state) {
  StateDict values;
  for (const detail::StateField& field : format.state) {
    StateValue value = field.get(state);
    if (!value.is_none() && (field.like_parameter || field.needed(options, state))) {
      values[field.name] = std::move(value);
    } else if (format.is_shared && !field.may_lack) {
      values[field.name] = {};  // load() takes for a None what is stored, of whatever length
    }
  }
  return values;
}

class Getter {
 public:
  explicit Getter(const torch::nn::Module& module) : names_(detail::parameter_names(module)) {}

  void add(Optimizer& optimizer) {
    const OptimizerFormat& format = detail::format_of(kOperation, optimizer);
    bool is_first = true;
    for (auto& group : optimizer.param_groups()) {
      StateDict values;
      for (const detail::GroupField& field : format.group) values[field.name] = field.get(group.options());
      StateList params;
      for (const Tensor& parameter : group.params()) {
        const std::string& name = detail::names_of(kOperation, names_, parameter).front();
        params.emplace_back(name);
        if (is_first || !format.is_shared) add_state(format, optimizer, group.options(), parameter, name);
        is_first = false;
      }
      values[detail::kParams] = std::move(params);
      groups_.emplace_back(std::move(values));
    }
  }

  StateDict take() { return {{detail::kState, std::move(state_)}, {detail::kGroups, std::move(groups_)}}; }

 private:
  // What is not there yet is made, so that there is something to load into.
  void add_state(const OptimizerFormat& format, Optimizer& optimizer, detail::OptimizerOptions& options,
                 const Tensor& parameter, const std::string& name) {
    void* key = parameter.unsafeGetTensorImpl();
    const auto found = optimizer.state().find(key);
    if (found != optimizer.state().end()) {
      state_[name] = state_values(format, options, *found->second);
      return;
    }
    if (!parameter.requires_grad() || !format.has_state(options)) return;
    auto made = detail::initial_state(format, parameter, options);
    state_[name] = state_values(format, options, *made);
    if (format.may_begin(options)) optimizer.state()[key] = std::move(made);
  }

  detail::ParameterNames names_;
  StateDict state_;
  StateList groups_;
};

}  // namespace

StateDict get_optimizer_state_dict(const torch::nn::Module& module, const Optimizers& optimizers,
                                   const StateDictOptions& options) {
  detail::check_options(kOperation, options);
  if (optimizers.empty()) {
    detail::throw_error(ErrorText(kOperation, "there is no optimizer").help("get_model_state_dict for a module alone"));
  }
  Getter getter(module);
  for (Optimizer& optimizer : optimizers) getter.add(optimizer);
  const StateDict state = getter.take();
  return detail::with_options(options.flatten_optimizer_state_dict ? detail::flattened(state) : state, options);
}

StateDict get_optimizer_state_dict(const torch::nn::Module& module, Optimizer& optimizer,
                                   const StateDictOptions& options) {
  return get_optimizer_state_dict(module, Optimizers{optimizer}, options);
}

ModelAndOptimizerState get_state_dict(const torch::nn::Module& module, const Optimizers& optimizers,
                                      const StateDictOptions& options) {
  return {get_model_state_dict(module, options),
          optimizers.empty() ? StateDict() : get_optimizer_state_dict(module, optimizers, options)};
}

IncompatibleKeys set_state_dict(torch::nn::Module& module, const Optimizers& optimizers,
                                const ModelAndOptimizerState& state, const StateDictOptions& options) {
  IncompatibleKeys keys = set_model_state_dict(module, state.model, options);
  if (!optimizers.empty()) set_optimizer_state_dict(module, optimizers, state.optimizer, options);
  return keys;
}

}  // namespace sherd
