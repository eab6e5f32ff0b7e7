#pragma once
// Operators that mean something of their own on a LocalShardsWrapper. Each is false, the stack untouched, where the
// call is on another kind of tensor.

#include <ATen/core/stack.h>

#include "tensor/op_info.h"

namespace sherd::detail {

/// view(self, size): of the same size alone, since offsets have no meaning in another one.
bool view_of_shards(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// new_empty(self, size, ...) and its like, of another size: a plain tensor.
bool new_beside_shards(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// all_gather_into_tensor(input, group_size, group_name): of the closed-up tensor; where shards leave holes in it, of
/// their elements in the order of offsets.
bool all_gather_shards(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// wait_tensor(tensor): for every shard.
bool wait_for_shards(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
