#pragma once
// Values of states and values of pickles.

#include <string>
#include <vector>

#include "format/value.h"
#include "sherd/state_dict.h"

namespace sherd::detail {

/// A value as a pickle holds it. Plain tensors become TensorRefs with the keys "0", "1", ... and are added to
/// `tensors`, in this order. Throws c10::ValueError for what a pickle of one rank cannot hold: tensors of several
/// ranks, Statefuls.
format::Value to_pickle(const char* operation, const StateValue& value, std::vector<at::Tensor>& tensors);

/// The value in what torch.save wrote; errors name it so, and count bytes from `origin`. Where something in it has no
/// counterpart: the bytes themselves, as a StateOpaque. Throws std::invalid_argument where they are damaged, and where
/// it unfolds too far (format::check_unfolded).
StateValue object_from(std::string archive, const std::string& name, int64_t origin = 0);

}  // namespace sherd::detail
