#pragma once
// Tensors of a state that lie in one memory.

#include <vector>

#include "checkpoint/saved_state.h"
#include "format/dcp.h"

namespace sherd::detail {

/// Plain tensors that share a storage, two and more of them each: tied weights, views of one buffer. Tensors in parts
/// and conjugates, whose elements are not those of the storage, are none.
std::vector<std::vector<format::SharedView>> shared_views(const std::vector<SavedLeaf>& leaves);

}  // namespace sherd::detail
