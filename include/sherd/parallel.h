#pragma once
// Parallel training for torch::nn modules.

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sherd/call.h"
#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// How the parameter or buffer called `name` ("blocks.0.attn.weight") of `module` is placed.
using PartitionFunction = std::function<Placements(const std::string& name, const at::Tensor& tensor)>;

/// Changes the tensors that a module is given, or those that it returns, in their order:
///   [](std::vector<at::Tensor>& x, const DeviceMesh& mesh) { x[0] = distribute_tensor(x[0], mesh, {Shard(0)}); }
using TensorsFunction = std::function<void(std::vector<at::Tensor>& tensors, const DeviceMesh& mesh)>;

/// Replaces every parameter and buffer of `module` and its children by DTensors on `mesh`, in place: replicated, or as
/// `partition` says. An optimizer made before sees the same parameters; a tensor that two modules share stays shared.
/// `input` and `output` take effect through sherd::call(module, x) alone (call.h says why).
///
/// Every rank of the mesh calls it; one small exchange makes sure that they have the same module. Throws
/// c10::ValueError on every rank, before anything changes, where the module is distributed already, where ranks have
/// different modules, and where a shared tensor is to be placed in two ways.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition = {},
                       const TensorsFunction& input = {}, const TensorsFunction& output = {});

/// A module with what was asked of its inputs and outputs.
template <class Impl>
class DistributedModule {
 public:
  explicit DistributedModule(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  /// sherd::call(module, arguments...).
  template <class... Arguments>
  auto forward(Arguments&&... arguments) const {
    return call(*impl_, std::forward<Arguments>(arguments)...);
  }
  Impl* operator->() const { return impl_.get(); }
  Impl& operator*() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

template <class Impl>
DistributedModule<Impl> distribute_module(torch::nn::ModuleHolder<Impl>& module, const DeviceMesh& mesh,
                                          const PartitionFunction& partition = {}, const TensorsFunction& input = {},
                                          const TensorsFunction& output = {}) {
  distribute_module(*module, mesh, partition, input, output);
  return DistributedModule<Impl>(module.ptr());
}

}  // namespace sherd
