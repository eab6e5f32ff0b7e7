#pragma once
// Parallel training for torch::nn modules.

#include <torch/nn/module.h>

#include <functional>
#include <string>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// How the parameter or buffer called `name` ("blocks.0.attn.weight") of `module` is placed.
using PartitionFunction = std::function<Placements(const std::string& name, const at::Tensor& tensor)>;

/// Replaces every parameter and buffer of `module` and its children by DTensors on `mesh`, in place: replicated, or as
/// `partition` says. An optimizer made before sees the same parameters. Throws c10::ValueError, before anything
/// changes, where the module is distributed already.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition = {});

template <class Impl>
void distribute_module(torch::nn::ModuleHolder<Impl>& module, const DeviceMesh& mesh,
                       const PartitionFunction& partition = {}) {
  distribute_module(*module, mesh, partition);
}

}  // namespace sherd
