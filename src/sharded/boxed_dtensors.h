#pragma once
// Operators on DTensors whose parts are LocalShardsWrappers. Element by element they go box by box, and the result lies
// in the same boxes; before every other operator such a tensor is brought to its placements, by one exchange.

#include "tensor/held_boxes.h"
#include "tensor/op_info.h"

namespace sherd::detail {

/// Runs the call on the stack; false, the stack untouched, where it has no such DTensor.
bool run_on_boxed_dtensors(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

/// An ordinary DTensor of the call in the boxes of `held`, as a tensor of pieces; dims are broadcast.
at::Tensor operand_in_boxes(const OpInfo& info, const at::Tensor& dtensor, const HeldBoxes& held);

/// A tensor that lies in the boxes of `from` in those of `to`. Both as tensors of pieces.
at::Tensor from_boxes_to_boxes(const std::string& operation, const at::Tensor& tensor, const HeldBoxesPtr& from,
                               const HeldBoxesPtr& to);

}  // namespace sherd::detail
