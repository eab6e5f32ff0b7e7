#pragma once
// Gradients as each rank holds them, mesh by mesh: for numbers that all of them make together (a norm, "one is not
// finite") at the cost of one small all_reduce for each mesh.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/group.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// The defined gradients of parameters.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);

struct HeldGradients {
  std::optional<DeviceMesh> mesh;  // none: plain tensors
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> locals;  // this rank's parts of them
  /// Whether a rank to the left on a replicated axis has the same: of each part, one rank's counts.
  std::vector<bool> is_copy;
  /// Whether writing to the part writes to the gradient: not where a Partial had to be reduced.
  std::vector<bool> is_own;
};

/// One entry for each mesh, in the order in which they first appear.
std::vector<HeldGradients> by_mesh(const std::vector<at::Tensor>& gradients);

/// All ranks of a mesh as one group. This rank is in the mesh.
Group group_of_all(const DeviceMesh& mesh);

/// To be called when the local part of a gradient was written without sherd's knowledge.
void note_written(const at::Tensor& gradient);

}  // namespace sherd::detail
