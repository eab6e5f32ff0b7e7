#pragma once
// Values of states and values of pickles.

#include <functional>
#include <optional>
#include <vector>

#include "format/value.h"
#include "sherd/state_dict.h"

namespace sherd::detail {

/// A value as a pickle holds it. Plain tensors become TensorRefs with the keys "0", "1", ... and are added to `tensors`, in this
/// order. Throws c10::ValueError for what a pickle of one rank cannot hold: tensors of several ranks, Statefuls.
format::Value to_pickle(const char* operation, const StateValue& value, std::vector<at::Tensor>& tensors);

/// The value of a pickle; nothing where something in it has no counterpart. `tensor_of` makes the tensors.
std::optional<StateValue> from_pickle(const format::Value& value,
                                      const std::function<at::Tensor(const format::TensorRef&)>& tensor_of);

}  // namespace sherd::detail
