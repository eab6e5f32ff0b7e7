#pragma once
// Any tensor under any placements, Partials included, made without communication.

#include <torch/torch.h>

#include <vector>

#include "sherd/dtensor.h"

namespace sherd::testing {

/// A DTensor whose full value is `whole`. The parts of a Partial(sum) are small integers that differ between ranks;
/// those of min and max are the value on one rank and something larger or smaller on the others.
at::Tensor distribute_any(const at::Tensor& whole, const DeviceMesh& mesh, const Placements& placements);

/// Every list of placements of a tensor of `ndim` dims: Replicate, Shard of each dim, Partial(sum) if `partial`.
std::vector<Placements> all_placements(const Mesh& mesh, int64_t ndim, bool partial);

/// The lists that all_placements leaves out: with StridedShard, Ragged (with an empty part on meshes of 3), and the
/// Partials that the tensor's dtype can have.
std::vector<Placements> unusual_placements(const Mesh& mesh, const at::Tensor& tensor);

}  // namespace sherd::testing
