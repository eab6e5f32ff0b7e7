#pragma once
// Operators that write to rows named by index, into a dim that is sharded: every rank writes the rows that it has, and
// nothing of the tensor moves.

#include "tensor/op_info.h"

namespace sherd::detail {

/// scatter, scatter_add, scatter_reduce, index_add, index_copy, index_fill, index_reduce, and these in place.
bool write_own_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// index_put, also in place.
bool put_own_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
