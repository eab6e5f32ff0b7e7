#pragma once

#include <string>

#include "sherd/placement.h"

namespace sherd::python {

/// The reduction called `name`. Throws std::invalid_argument with the names there are.
ReduceOp reduce_op_of(const char* operation, const std::string& name);

}  // namespace sherd::python
