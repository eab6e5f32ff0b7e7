#pragma once
// Operators that only move rows along a sharded dim: every rank gets the rows that it will have, and no others.

#include "tensor/op_info.h"

namespace sherd::detail {

bool flip_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool roll_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// constant_pad_nd of sharded dims; they are cut anew, evenly.
bool pad_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// cat along a sharded dim; the result is cut by the same axes.
bool cat_rows(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
