#pragma once
// Redistribution without autograd: plans, which are remembered, and their execution. Arguments are checked ones.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/purpose.h"
#include "plan/redistribute.h"
#include "sherd/redistribute.h"
#include "tensor/spec.h"

namespace sherd::detail {

plan::Prefer plan_preference(RedistributeOptions::Prefer prefer);

/// A plan, and what its collectives are for.
struct Planned {
  plan::Redistribution plan;
  std::string text;  // of what is moved where, and how, for the ranks to compare
  PurposePtr purpose;
};
using PlannedPtr = std::shared_ptr<const Planned>;

/// The plan between two specs of one mesh; made once per thread.
PlannedPtr plan_between(const SpecPtr& from, const SpecPtr& to, c10::ScalarType dtype,
                        const RedistributeOptions& options);

/// `background`: by groups of their own, for another thread than the rank's.
at::Tensor redistributed(const at::Tensor& tensor, const Placements& to, const RedistributeOptions& options = {},
                         bool background = false);
std::vector<at::Tensor> redistributed(const std::vector<at::Tensor>& tensors, const std::vector<Placements>& to,
                                      const RedistributeOptions& options, bool background = false);
/// To another mesh. The tensors are of one mesh.
std::vector<at::Tensor> redistributed(const std::vector<at::Tensor>& tensors, const DeviceMesh& mesh,
                                      const std::vector<Placements>& to, const RedistributeOptions& options,
                                      bool background = false);
/// The spec of what that makes of a tensor. Nothing is moved.
SpecPtr spec_after(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                   const RedistributeOptions& options);

/// Whether a tensor goes to a mesh by a plan on one of the two: the other is a slice of it.
bool stays_on_one_mesh(const Spec& from, const DeviceMesh& mesh, const RedistributeOptions& options);

/// How that last one, or the first one, moves a tensor.
std::string text_of_way(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                        const RedistributeOptions& options);

}  // namespace sherd::detail
