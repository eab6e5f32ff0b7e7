#pragma once
// TorchScript modules (torch::jit::load) over a mesh. They run as they are: their operators find DTensors.

#include "sherd/module_outline.h"
#include "sherd/parallel.h"

namespace torch::jit {
struct Module;
}

namespace sherd {

/// distribute_module for a TorchScript module: its parameters and buffers become DTensors, in place. What forward is
/// given and returns is up to the caller.
void distribute_module(torch::jit::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition = {});

/// For data_parallel and fully_shard: fully_shard(outline_of(module), mesh["dp"]).
ModuleOutline outline_of(const torch::jit::Module& module);

}  // namespace sherd
