#pragma once
// Carries out a redistribution plan on the local tensors.

#include <ATen/core/Tensor.h>

#include "plan/redistribute.h"
#include "sherd/device_mesh.h"

namespace sherd::detail {

/// This rank's local tensor after `plan`, `from` being the placements before. The result may be a view of `local`.
/// Every rank of the mesh calls it. Must run below autograd.
at::Tensor move(const plan::Redistribution& plan, const at::Tensor& local, const DeviceMesh& mesh, const Dims& shape,
                const Placements& from);

/// Plans and moves; `local` itself where the placements are equal.
at::Tensor move(const at::Tensor& local, const DeviceMesh& mesh, const Dims& shape, const Placements& from,
                const Placements& to);

}  // namespace sherd::detail
