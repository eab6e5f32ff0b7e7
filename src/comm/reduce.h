#pragma once
// Reductions of plain memory, by loops that compile to vector instructions.

#include <c10/core/ScalarType.h>

#include <cstddef>

#include "sherd/placement.h"

namespace sherd::detail {

/// out[k] = parts[0][k] op parts[1][k] op ..., in this order; 16-bit floats are summed in 32 bits and rounded once.
/// `out` may be one of the parts.
using ReduceLoop = void (*)(void* out, const void* const* parts, size_t ranks, size_t count);

/// Null for what nobody reduces often; reduce_into() knows everything.
ReduceLoop reduce_loop(c10::ScalarType dtype, ReduceOp op);

}  // namespace sherd::detail
