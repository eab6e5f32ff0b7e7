#pragma once
// Operators that name rows of a sharded dim by index: every rank writes or reads the rows that it has, and nothing of
// the tensor moves.

#include "tensor/op_info.h"

namespace sherd::detail {

/// scatter, scatter_add, scatter_reduce, index_add, index_copy, index_fill, index_reduce, and these in place.
bool write_own_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// index_put, also in place.
bool put_own_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// index_select and gather of few rows: the result is a sum to which each rank gives its own.
bool read_own_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
