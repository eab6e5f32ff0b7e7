#pragma once
// The differentiable ways into a DTensor, between placements, and out of it.

#include <ATen/core/Tensor.h>

#include <vector>

#include "sherd/redistribute.h"
#include "tensor/spec.h"

namespace sherd::detail {

/// The tensor with other placements; the gradient goes back to the old ones.
at::Tensor redistribute_edge(const at::Tensor& tensor, const Placements& to, const RedistributeOptions& options = {});

/// The same for several tensors of one mesh, moved together.
std::vector<at::Tensor> redistribute_edges(const std::vector<at::Tensor>& tensors, const std::vector<Placements>& to,
                                           const RedistributeOptions& options);

/// The tensor on another mesh; the gradient goes back to the old one.
at::Tensor redistribute_edge(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                             const RedistributeOptions& options);

/// The same for several tensors of one mesh, moved together.
std::vector<at::Tensor> redistribute_edges(const std::vector<at::Tensor>& tensors, const DeviceMesh& mesh,
                                           const std::vector<Placements>& to, const RedistributeOptions& options);

/// Says that `moved`, made of `tensor` without autograd, is its redistribution.
at::Tensor moved_edge(const at::Tensor& tensor, const at::Tensor& moved, const RedistributeOptions& options);

/// A DTensor of a local tensor; the gradient is brought to `grad_placements`, and its local part goes back.
at::Tensor from_local_edge(const at::Tensor& local, const SpecPtr& spec, const Placements& grad_placements);

/// The local tensor; its gradient is the local part of a DTensor with `grad_placements`.
at::Tensor to_local_edge(const at::Tensor& tensor, const Placements& grad_placements);

/// A DTensor, or a plain tensor that every rank has, in the boxes of `spec`; the gradient goes back.
at::Tensor to_boxes_edge(const at::Tensor& tensor, const SpecPtr& spec);

/// A gradient, which may be plain or on a larger slice of the mesh, on the mesh of `spec` with placements `to`.
at::Tensor gradient_for(const at::Tensor& grad, const SpecPtr& spec, const Placements& to);

/// Whether the parts of a gradient with these placements are of the rows that the tensor's own have, on every rank.
bool fits_parts(const Spec& spec, const Placements& grad_placements);

/// What a gradient's placements are by default: Partial becomes Replicate.
Placements grad_placements_for(Placements placements);

}  // namespace sherd::detail
