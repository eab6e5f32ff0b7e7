#pragma once
// The largest or smallest along a sharded dim, and where they stand: every rank names its own, the ranks tell each
// other, and each picks among these few.

#include "tensor/op_info.h"

namespace sherd::detail {

/// max.dim, min.dim.
bool pick_extreme(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// argmax, argmin, of a dim or of all elements.
bool pick_place(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// topk.
bool pick_several(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// kthvalue.
bool pick_kth(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// aminmax: two reductions.
bool pick_both(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
