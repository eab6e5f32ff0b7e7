#pragma once
// The same on a GPU, one launch each. False, nothing done, where this build has no kernel for the tensor's device.

#include <ATen/core/Tensor.h>

#include "random/counts.h"
#include "random/draw.h"
#include "random/loops.h"
#include "random/positions.h"

namespace sherd::detail {

/// Tensors are contiguous.
bool fill_on_device(const at::Tensor& out, Stored type, const Positions& positions, const Draw& draw);
bool drop_on_device(const at::Tensor& in, const at::Tensor& out, const at::Tensor& mask, Stored type,
                    const Positions& positions, const Dropout& dropout);
bool count_on_device(CountKind kind, const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                     const Positions& positions, uint64_t seed, uint64_t offset);

}  // namespace sherd::detail
