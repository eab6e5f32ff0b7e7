#pragma once
// Operators on tensors that lie in boxes, piece by piece: every rank does its own, and where the operator reduces what
// is cut, the ranks add up what they have. The rule of the operator says which these are.

#include "tensor/op_info.h"

namespace sherd::detail {

/// Runs the call on the stack; false, the stack untouched, where pieces cannot be taken one by one. Whether they can
/// follows from what all ranks know.
bool run_by_pieces(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

/// Operators on lists of tensors: one call on the pieces of all of them.
void run_lists_by_pieces(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

}  // namespace sherd::detail
