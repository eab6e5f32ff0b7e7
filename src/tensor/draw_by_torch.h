#pragma once
// The modes in which torch's own generators draw: torch_exact and offset_based.

#include "random/generator.h"
#include "tensor/op_info.h"

namespace sherd::detail {

/// Runs the random operator on the stack in the mode of `generator`, which is not by_position; leaves DTensors.
void draw_by_torch(const c10::OperatorHandle& op, torch::jit::Stack& stack, PhiloxGenerator& generator);

}  // namespace sherd::detail
