#pragma once
// Redistribution without autograd: plans, which are remembered, and their execution. Arguments are checked ones.

#include <ATen/core/Tensor.h>

#include <vector>

#include "plan/redistribute.h"
#include "sherd/redistribute.h"
#include "tensor/spec.h"

namespace sherd::detail {

/// The plan between two specs of one mesh; made once per thread.
const plan::Redistribution& plan_between(const SpecPtr& from, const SpecPtr& to, int64_t element_size,
                                         const RedistributeOptions& options);

/// `background`: by groups of their own, for another thread than the rank's.
at::Tensor redistributed(const at::Tensor& tensor, const Placements& to, const RedistributeOptions& options = {},
                         bool background = false);
std::vector<at::Tensor> redistributed(const std::vector<at::Tensor>& tensors, const std::vector<Placements>& to,
                                      const RedistributeOptions& options, bool background = false);
at::Tensor redistributed(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                         const RedistributeOptions& options);

}  // namespace sherd::detail
