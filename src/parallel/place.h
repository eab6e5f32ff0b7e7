#pragma once

#include <ATen/core/Tensor.h>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// True for a DTensor that ShardedInit made on this mesh and that nobody has placed since.
bool is_born_on(const at::Tensor& tensor, const DeviceMesh& mesh);

/// Makes a parameter or buffer a DTensor of these placements, in place: a plain one from the first rank's values, one
/// that is on the mesh already by moving it.
void place(at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements);

}  // namespace sherd::detail
