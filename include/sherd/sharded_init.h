#pragma once
// Modules that are born sharded: no rank ever has the whole of a parameter.

#include <optional>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// While it lives, tensors of floating-point numbers that this thread makes by torch::empty, zeros, ones, full, rand
/// and randn are DTensors on `mesh`, Shard(0) over every axis: the parameters and buffers that a module's constructor
/// makes. torch::nn::init and reset_parameters() draw on them as on any DTensor: the same numbers on every mesh.
/// Tensors without dims and integers stay plain.
///
///   Model model = [&] { sherd::ShardedInit guard(mesh["tp"]); return Model(options); }();
///   sherd::parallelize_module(model, mesh["tp"], plan);
///
/// parallelize_module then moves each parameter from there to where the plan says; what is Shard(0) moves nothing.
/// A plan names modules, and a constructor does not know its own name: that is why these are two steps.
class ShardedInit {
 public:
  explicit ShardedInit(const DeviceMesh& mesh);
  ~ShardedInit();
  ShardedInit(const ShardedInit&) = delete;
  ShardedInit& operator=(const ShardedInit&) = delete;

  const DeviceMesh& mesh() const { return mesh_; }

 private:
  DeviceMesh mesh_;
  ShardedInit* outer_;
};

}  // namespace sherd
