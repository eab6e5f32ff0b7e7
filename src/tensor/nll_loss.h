#pragma once
// The negative log likelihood where ranks hold the log probabilities of different classes: each picks the targets that
// it has, and nothing of the logits moves.

#include "tensor/op_info.h"

namespace sherd::detail {

/// nll_loss_forward and nll_loss2d_forward; also the mean over a sharded batch, which divides the sums.
bool nll_loss_of_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// Their backward: the gradient is cut as the log probabilities are.
bool nll_loss_of_parts_backward(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
