#pragma once
// Operators along a sharded dim that need not gather it: ranks first agree on a number per row (a maximum, a sum), then
// each works on its own part.

#include "tensor/op_info.h"

namespace sherd::detail {

bool two_pass_softmax(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool two_pass_softmax_backward(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool two_pass_norm(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool two_pass_logsumexp(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool two_pass_variance(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
