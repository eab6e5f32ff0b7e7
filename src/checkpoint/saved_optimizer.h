#pragma once
// The forms that an optimizer's state comes in: by names, as get_optimizer_state_dict gives it; flat; and torch.optim's
// own, where parameters have numbers.

#include "checkpoint/module_tensors.h"
#include "sherd/model_state.h"

namespace sherd::detail {

inline constexpr const char* kState = "state";
inline constexpr const char* kGroups = "param_groups";
inline constexpr const char* kParams = "params";

/// All names of a parameter. Throws c10::ValueError where the module has no such parameter.
const std::vector<std::string>& names_of(const char* operation, const ParameterNames& names,
                                         const at::Tensor& parameter);

/// One level of keys. Throws c10::NotImplementedError for states that are neither tensors nor numbers nor dicts of
/// them.
StateDict flattened(const StateDict& by_names);

/// Any form as the one by names. Keys of parameters that the optimizers do not have come along. Throws c10::ValueError
/// for what is none of the forms.
StateDict by_names(const char* operation, const StateDict& state, const ParameterNames& names,
                   const Optimizers& optimizers);

}  // namespace sherd::detail
