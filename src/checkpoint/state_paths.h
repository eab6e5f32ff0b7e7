#pragma once
// Ways through a state, in errors and in lists.

#include <string>

#include "sherd/state_dict.h"

namespace sherd::detail {

/// "weight" in quotes, 5 without.
std::string quoted(const StateKey& key);
/// ["model"]["layers.0"][5]: as one would write it in Python, so that the parts can be told apart.
std::string quoted(const StatePath& path);

/// The item of a list, which grows to hold it. Throws as set_element says.
StateValue& list_item(StateList& list, const StateKey& place, const StatePath& path);

}  // namespace sherd::detail
