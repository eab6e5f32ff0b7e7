#pragma once

#include "tensor/op_plan.h"

namespace sherd::detail {

/// Calls an operator on a rank that has no rows of some dim: with one row of zeros instead, which is cut off the
/// results again. Where that dim is reduced, the rank's part of the result is the reduction's neutral element.
void call_padded(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan, torch::jit::Stack& stack);

}  // namespace sherd::detail
