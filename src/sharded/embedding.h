#pragma once
// Look-ups in a ShardedTensor of rows, columns or a grid. Each rank has its own ids and gets its own rows, as in
// PyTorch: the ids are gathered, every rank answers from its part, and each gets its answers back.

#include <ATen/core/stack.h>

#include "tensor/op_info.h"

namespace sherd::detail {

/// embedding(weight, indices, ...) where autograd did not see it first.
bool embedding_below_autograd(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// embedding_renorm_(weight, indices, max_norm, norm_type): rows that any rank asks for, each once, by its whole norm.
bool embedding_renorm(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
