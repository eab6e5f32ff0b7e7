#pragma once
// Values of states and values of pickles.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/value.h"
#include "sherd/state_dict.h"

namespace sherd::detail {

/// A value as a pickle holds it. Plain tensors become TensorRefs with the keys "0", "1", ... and are added to
/// `tensors`, in this order. Throws c10::ValueError for what a pickle of one rank cannot hold: tensors of several
/// ranks, Statefuls.
format::Value to_pickle(const char* operation, const StateValue& value, std::vector<at::Tensor>& tensors);

/// The value of a pickle; nothing where something in it has no counterpart. `tensor_of` makes the tensors.
std::optional<StateValue> from_pickle(const format::Value& value,
                                      const std::function<at::Tensor(const format::TensorRef&)>& tensor_of);

/// Whether the elements that it names lie within a record of so many bytes.
bool fits(const format::TensorRef& ref, int64_t bytes);
/// A tensor of its own from the bytes of the record that it refers to. Throws std::invalid_argument where it does not
/// fit them.
at::Tensor tensor_from(const format::TensorRef& ref, std::span<const std::byte> record, const std::string& reader);

}  // namespace sherd::detail
