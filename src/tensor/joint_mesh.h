#pragma once
// Tensors on slices of one mesh meet. One on mesh["tp"] counts as replicated over the axes that its slice lacks, as a
// plain tensor does over all; what an operator makes of both lives on the slice that has the axes of all.

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"
#include "tensor/op_info.h"

namespace sherd::detail {

/// True where `part` is `whole`, or a slice of it along some of its axes.
bool is_slice(const DeviceMesh& part, const DeviceMesh& whole);

/// The slice of their root that has the axes of both, in the root's order; nothing where they come from different
/// roots, or an axis is not the root's own (a flattened one).
std::optional<DeviceMesh> joint_mesh(const DeviceMesh& a, const DeviceMesh& b);

/// The placements of a tensor on the slice `part`, as seen on `whole`.
Placements lifted_placements(const Placements& placements, const DeviceMesh& part, const DeviceMesh& whole);

/// A DTensor on a slice of `whole` as one on `whole`, and back where the axes that go are replicated: the same local
/// tensor, nothing is moved. Below autograd.
at::Tensor lifted(const at::Tensor& tensor, const DeviceMesh& whole);
at::Tensor lowered(const at::Tensor& tensor, const DeviceMesh& part);

/// The values of a DTensor on a mesh that has a joint mesh with its own: replicated over the axes that the mesh lacks.
/// Throws c10::ValueError where there is none. Below autograd.
at::Tensor brought_to_mesh(const char* operation, const at::Tensor& tensor, const DeviceMesh& mesh);

/// The mesh on which the DTensors of a call meet; what the operator writes stays where it is. Nothing where they are on
/// one mesh already, or on meshes that have nothing to do with each other.
std::optional<DeviceMesh> meeting_mesh(const OpInfo& info, const torch::jit::Stack& stack);

/// Brings the DTensors of a call, less those that it writes, there.
void bring_to_mesh(const OpInfo& info, torch::jit::Stack& stack, const DeviceMesh& mesh);

}  // namespace sherd::detail
