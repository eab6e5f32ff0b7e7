#pragma once
// Carries out redistribution plans on the local tensors.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "plan/redistribute.h"
#include "sherd/device_mesh.h"

namespace sherd::detail {

/// One tensor to move: this rank's part of it, and the plan.
struct Move {
  const plan::Redistribution& plan;
  at::Tensor local;
  const Dims& shape;
  const Placements& from;
};

struct MoveOptions {
  int64_t staging_bytes = int64_t{64} << 20;  // for what lies neither in the input nor in the output
  std::optional<c10::ScalarType> reduce_dtype = {};
  std::optional<c10::ScalarType> move_dtype = {};
  bool background = false;  // by groups that nothing else uses
};

/// This rank's local tensors after the plans. A result may be a view of its `local`. Tensors whose plans take the same
/// steps along the same axes share their messages. Every rank of the mesh calls it; must run below autograd.
std::vector<at::Tensor> move_together(const DeviceMesh& mesh, const std::vector<Move>& moves,
                                      const MoveOptions& options = {});

at::Tensor move(const plan::Redistribution& plan, const at::Tensor& local, const DeviceMesh& mesh, const Dims& shape,
                const Placements& from);

/// Plans and moves; `local` itself where the placements are equal.
at::Tensor move(const at::Tensor& local, const DeviceMesh& mesh, const Dims& shape, const Placements& from,
                const Placements& to);

}  // namespace sherd::detail
