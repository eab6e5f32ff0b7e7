#pragma once
// Operators that torch itself writes in terms of others: where they have no rule, their parts may.

#include "tensor/op_info.h"

namespace sherd::detail {

/// Runs the call on the stack by torch's own composite kernel on the DTensors, so that each operator in it takes its
/// own rule; the results are DTensors. False, the stack untouched, where that would not be right or not be cheaper than
/// gathering: nothing is sharded, the operator has a rule or is not known to consist of operators alone, or it is being
/// decomposed already, further up in this thread.
bool decompose(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

/// The kernel to use, or nothing where the operator is not one of these.
std::optional<c10::DispatchKey> composite_kernel_of(const c10::OperatorHandle& op);

}  // namespace sherd::detail
