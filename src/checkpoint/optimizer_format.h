#pragma once
// What Python's torch.optim keeps in its state dicts, class by class, and where libtorch keeps the same.

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sherd/state_dict.h"

namespace sherd::detail {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

/// One option of a parameter group.
struct GroupField {
  std::string name;
  std::function<StateValue(OptimizerOptions&)> get;
  /// Empty where libtorch has no such option: `get` gives Python's default.
  std::function<void(OptimizerOptions&, const StateValue&)> set = {};
  /// For those without `set`: whether another value than the default would change what a step does.
  bool matters = false;
};

/// One entry of a parameter's state.
struct StateField {
  std::string name;
  /// A tensor of the parameter's size, cut as it is. The others are values or lists, the same on every rank.
  bool like_parameter = false;
  /// None where there is nothing.
  std::function<StateValue(const OptimizerParamState&)> get;
  /// Keeps a tensor like the parameter as it is; makes copies of others. Throws c10::ValueError for another kind of
  /// value.
  std::function<void(OptimizerParamState&, const StateValue&)> set;
  /// Whether a step with these options needs it.
  std::function<bool(OptimizerOptions&, const OptimizerParamState&)> needed;
  /// What the first step begins with; for tensors like the parameter.
  std::function<double(OptimizerOptions&)> initial = {};
  /// A state without it is whole: a step makes it anew.
  bool may_lack = false;
};

struct OptimizerFormat {
  std::string name;
  std::function<bool(const torch::optim::Optimizer&)> is;
  std::vector<GroupField> group;
  std::vector<StateField> state;
  std::function<std::unique_ptr<OptimizerParamState>()> make_state;
  /// Whether parameters have a state with these options.
  std::function<bool(OptimizerOptions&)> has_state;
  /// Whether a state as the first step begins with is the same as none.
  std::function<bool(OptimizerOptions&)> may_begin;
  /// One state for all parameters, kept with the first.
  bool is_shared = false;
};

/// Throws c10::NotImplementedError where it is none of libtorch's.
const OptimizerFormat& format_of(const char* operation, const torch::optim::Optimizer& optimizer);

/// The state that a parameter's first step would begin with.
std::unique_ptr<OptimizerParamState> initial_state(const OptimizerFormat& format, const at::Tensor& parameter,
                                                   OptimizerOptions& options);

}  // namespace sherd::detail
