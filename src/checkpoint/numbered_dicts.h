#pragma once
// Dicts with ints for keys, which may look like lists once a state is flattened.

#include <vector>

#include "format/dcp.h"
#include "sherd/state_dict.h"

namespace sherd::detail {

/// The paths of dicts that have ints for keys, outer ones first. Of a state whose Statefuls were asked.
std::vector<std::vector<format::PathPart>> numbered_dicts(const StateDict& state);

/// Makes dicts of the lists at these paths.
void restore_dicts(const std::vector<std::vector<format::PathPart>>& dicts, StateDict& state);

}  // namespace sherd::detail
