#pragma once
// Meshes of XLA devices. `init_device_mesh("xla", {2, 4}, {"dp", "tp"})` names the devices of a program that XLA
// spreads over them; their number is not that of ranks, and no rank stands in the mesh. What is distributed on it goes
// to XLA through a bridge that a build with torch_xla registers: the tensor and its sharding in XLA's words.

#include <ATen/core/Tensor.h>

#include <functional>

#include "sherd/xla_sharding.h"

namespace sherd {

/// Called from the thread that distributes, possibly from several at once.
struct XlaBridge {
  /// Gives the tensor to XLA with this sharding, as torch_xla's mark_sharding does. Returns the tensor itself, or
  /// another of its shape whose data a parameter can take (Tensor::set_data). `to_op_sharding` has the bytes that XLA
  /// reads.
  std::function<at::Tensor(const at::Tensor& tensor, const XlaSharding& sharding)> mark;
  /// True for a tensor that `mark` has returned.
  std::function<bool(const at::Tensor& tensor)> is_marked;
  /// The whole value of such a tensor, for full_tensor. May be left out.
  std::function<at::Tensor(const at::Tensor& tensor)> gather;
};

/// From now on `distribute_tensor`, `distribute_parameter_` and `distribute_module` on an "xla" mesh, and `full_tensor`
/// of what they return, use this bridge. It replaces the one before, in the whole process; XlaBridge() takes it away.
/// Throws c10::ValueError where `mark` or `is_marked` is missing.
void register_xla_bridge(XlaBridge bridge);

/// What the registered bridge says; false where there is none.
bool is_xla_marked(const at::Tensor& tensor);

}  // namespace sherd
