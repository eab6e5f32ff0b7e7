#pragma once
// From the graph of a pickle to values: containers as they are, tensors by reference, the rest as Objects.

#include "format/pickle.h"
#include "format/pickle_graph.h"
#include "format/value.h"

namespace sherd::format {

/// `input_size` bounds the memory: a text that the pickle holds once and names a million times would be copied as
/// often. Throws std::invalid_argument.
Value value_of(const PickleGraph& graph, const Node& node, const UnpickleOptions& options, size_t input_size);

}  // namespace sherd::format
