#pragma once
// Python's values and those of states, and what saves and loads them.

#include "bindings.h"
#include "sherd/state_dict.h"

namespace sherd::python {

/// What a state has no kind for is what `pickle` makes of it. Never throws for what is in the state: where it cannot be
/// taken over, the result throws c10::ValueError when ranks agree on it, on all of them.
StateDict to_state(const std::string& operation, const py::dict& state, const py::function& pickle);
py::dict from_state(const StateDict& state, const py::function& unpickle);

/// A part of bind_checkpoint.
void bind_checkpoint_manager(py::module_& module);

}  // namespace sherd::python
