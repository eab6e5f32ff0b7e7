#pragma once
// Convolutions and pools over a sharded spatial dim. A row of the result needs a window of rows of the input: every
// rank gets the rows that its windows reach into, the halo, and runs the plain operator on them. In the backward pass
// the halo's gradients go back to where the rows came from.

#include "tensor/op_info.h"

namespace sherd::detail {

/// convolution, avg_pool2d/3d, max_pool2d/3d_with_indices.
bool with_halo(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// Their backward operators.
bool halo_backward(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
