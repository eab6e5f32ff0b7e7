#pragma once
#include "tensor/op_info.h"

namespace sherd::detail {

/// A plain tensor that meets a DTensor counts as the same on every rank. In a world that checks its calls
/// (WorldOptions::check) this looks whether it is: true where the call has such tensors there. Throws the same
/// c10::ValueError on every rank of the mesh, naming two ranks, where they differ. In other worlds, and for calls
/// without plain tensors, false at no cost to speak of.
bool compare_plain(const c10::OperatorHandle& op, const OpInfo& info, const torch::jit::Stack& stack);

}  // namespace sherd::detail
