#pragma once
// ShardedTensors as DTensors: the same memory where every rank of the group holds one rectangle of a grid, else by one
// exchange. Operators that cannot go piece by piece take this way.

#include "sharded/layout.h"
#include "tensor/op_info.h"

namespace sherd::detail {

/// A mesh and placements that give every rank of the group just its rectangle.
struct MeshForm {
  DeviceMesh mesh;
  Placements placements;
};
std::optional<MeshForm> mesh_form(const ShardedLayout& layout);

/// A DTensor of the pieces as they are, in the form of their layout. Below autograd.
at::Tensor shared_dtensor(const at::Tensor& tensor, const MeshForm& form);

/// The ShardedTensor of a DTensor's memory, nothing where it has replicas, Partials or strides.
std::optional<at::Tensor> shared_sharded(const at::Tensor& tensor, const Holders& holders);

/// Runs a call on ShardedTensors as one on DTensors. Results that are sharded are ShardedTensors, others plain.
/// False, the stack untouched, where a tensor has no group.
bool run_as_dtensors(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

}  // namespace sherd::detail
