#pragma once
// Reductions of tensors of one rank, as the transports reduce those of several.

#include <ATen/core/Tensor.h>

#include <vector>

#include "sherd/placement.h"

namespace sherd::detail {

/// Throws c10::ValueError where numbers of this dtype have no such reduction.
void check_reduction(const char* operation, const at::Tensor& tensor, ReduceOp op);

/// out = the reduction of `parts` in their order; 16-bit floats are summed in 32 bits.
void reduce_into(const at::Tensor& out, const std::vector<at::Tensor>& parts, ReduceOp op);

}  // namespace sherd::detail
