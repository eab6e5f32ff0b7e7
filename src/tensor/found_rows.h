#pragma once
// Operators whose results depend on values: how many elements are not zero, which numbers occur. Every rank looks at
// its own elements, and the ranks exchange counts, or the few things that they found.

#include "tensor/op_info.h"

namespace sherd::detail {

/// nonzero of a tensor sharded along its first dim: the result is sharded as its elements are.
bool find_nonzero(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// masked_select, the same.
bool select_masked(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// bincount and histc: sums of what the ranks count.
bool count_numbers(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool count_in_bins(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// _unique2 of integers.
bool find_unique(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
