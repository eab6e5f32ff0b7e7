#pragma once
// A state as the options of get_model_state_dict ask for it: whole tensors, on the CPU.

#include "sherd/model_state.h"

namespace sherd::detail {

/// Throws c10::ValueError where the options exclude each other.
void check_options(const char* operation, const StateDictOptions& options);

/// The same state with other tensors. Communicates for whole ones.
StateDict with_options(const StateDict& state, const StateDictOptions& options);

}  // namespace sherd::detail
