#pragma once
// Batch norm in training over a sharded batch: the ranks exchange sums, a few numbers per channel.

#include "tensor/op_info.h"

namespace sherd::detail {

/// native_batch_norm, _native_batch_norm_legit, _batch_norm_with_update and the like.
bool batch_norm_over_ranks(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool batch_norm_backward_over_ranks(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// cudnn_batch_norm, which libtorch takes on a GPU: the operators above, which have rules, in its place.
bool batch_norm_without_cudnn(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool batch_norm_backward_without_cudnn(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
