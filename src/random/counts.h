#pragma once
// Draws whose parameters are tensors: each element has its own. `a` and `b` are float64, contiguous, and as large as
// the local tensor whose elements stand at `positions`; the result is float64.

#include <ATen/core/Tensor.h>

#include "random/positions.h"

namespace sherd::detail {

enum class CountKind : uint8_t {
  bernoulli,  // 1 with probability a
  poisson,    // of rate a
  binomial,   // successes of a trials of probability b
};

at::Tensor draw_counts(CountKind kind, const at::Tensor& a, const at::Tensor& b, const Positions& positions,
                       uint64_t seed, uint64_t offset);

}  // namespace sherd::detail
