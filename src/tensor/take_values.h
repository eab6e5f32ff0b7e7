#pragma once
// Ranks that are to hold the same, made to.

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

#include "sherd/device_mesh.h"

namespace sherd::detail {

/// Writes into `local` what the place `source` along an axis has. Every rank along it calls this, with tensors of one
/// shape.
void take_values_of(int source, const at::Tensor& local, const DeviceMesh& mesh, int64_t axis);

}  // namespace sherd::detail
