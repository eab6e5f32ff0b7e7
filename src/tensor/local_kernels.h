#pragma once
// Operators whose work on a shard is not the operator itself.

#include "tensor/op_plan.h"

namespace sherd::detail {

/// Null where the operator runs on the local tensors as it is.
LocalKernel local_kernel_for(const OpInfo& info, const OpPlan& plan, bool masked);

/// index_reduce and index_reduce_ on plain tensors, also where torch's own kernel fails: products of 16-bit floats
/// whose rows have one element, which shards have more often than whole tensors.
void index_reduce_locally(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
