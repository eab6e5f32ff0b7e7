#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace sherd::detail {

/// Runs the function that a user registered for this operator, on any spec or on the spec of the first ShardedTensor;
/// false where there is none.
bool run_custom_op(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
