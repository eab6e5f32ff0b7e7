#pragma once
// Running sums and the like along a sharded dim: every rank scans its own rows, the ranks tell each other how theirs
// end, and each adds what came before.

#include "tensor/op_info.h"

namespace sherd::detail {

/// cumsum, cumprod, logcumsumexp.
bool scan(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// cummax, cummin.
bool scan_extremes(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sherd::detail
