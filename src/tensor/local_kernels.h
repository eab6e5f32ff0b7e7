#pragma once
// Operators whose work on a shard is not the operator itself.

#include "tensor/op_plan.h"

namespace sherd::detail {

/// Null where the operator runs on the local tensors as it is.
LocalKernel local_kernel_for(const OpInfo& info, const OpPlan& plan, bool masked);

}  // namespace sherd::detail
