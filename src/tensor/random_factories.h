#pragma once

#include <ATen/core/Tensor.h>

#include "random/generator.h"
#include "random/positions.h"

namespace sherd::detail {

/// The rows at `positions` of a new random permutation of 0 ... n - 1, on the CPU.
at::Tensor permutation_rows(int64_t n, PhiloxGenerator& generator, const Positions& positions);

}  // namespace sherd::detail
