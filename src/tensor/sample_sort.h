#pragma once
// Sorting a sharded vector without gathering it.

#include "tensor/op_info.h"

namespace sherd::detail {

/// sort and sort.stable of a long vector that is sharded: a rank receives about as much as it holds.
bool sample_sort(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
