#pragma once
#include "sherd/dtensor.h"

namespace sherd::detail {

/// from_local where the local tensor is a rank's own box of pieces (a LocalShardsWrapper): on every rank of the mesh.
at::Tensor from_local_boxes(const at::Tensor& local, const DeviceMesh& mesh, Placements placements,
                            const FromLocalOptions& options);

}  // namespace sherd::detail
