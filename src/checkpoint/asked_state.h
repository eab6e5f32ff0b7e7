#pragma once
// States whose Statefuls have said what theirs is.

#include <optional>

#include "sherd/state_dict.h"

namespace sherd::detail {

/// The state with the dict of every Stateful in its place; nothing where it has none. Each is asked once: its answers
/// may differ, and cost something.
std::optional<StateDict> asked_state(const StateDict& state);

}  // namespace sherd::detail
