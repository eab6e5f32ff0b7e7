#pragma once
// Random numbers into a local tensor, by the places of its elements in the global one. Each is one pass over the
// memory, and one launch on a GPU.

#include <ATen/core/Tensor.h>

#include "random/draw.h"
#include "random/loops.h"
#include "random/positions.h"

namespace sherd::detail {

/// Fills `local`, whose elements stand at `positions`. The dtype must fit the distribution.
void fill(const at::Tensor& local, const Positions& positions, Draw draw);

/// What is kept of `in`, scaled, and where `mask` is defined, what was kept.
at::Tensor drop(const at::Tensor& in, const Positions& positions, const Dropout& dropout, const at::Tensor& mask = {});

/// Whether the dtype is one that can be filled.
bool can_fill(c10::ScalarType dtype);

}  // namespace sherd::detail
