#pragma once
// Operators that are other operators in disguise once their tensors are sharded: a mean is a sum divided by the global
// count, and so on. A rewrite runs on DTensors, so each part takes its own rule.

#include "tensor/op_info.h"

namespace sherd::detail {

/// Null where the operator has none.
Rewrite rewrite_for(const std::string& name, const std::string& overload);

}  // namespace sherd::detail
