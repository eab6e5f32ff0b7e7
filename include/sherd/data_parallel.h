#pragma once
// Data and fully sharded parallel training: the parameters of a module on a data axis, and their gradients.
//
// A batch is a DTensor whose rows are sharded over the data axis (sherd::distribute_tensor, sherd::from_local), the
// loss is that of the whole batch, and gradients are those of one device. docs/training.md has programs.

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/module_outline.h"

namespace sherd {

namespace detail {
class GradientSync;
}

/// The gradients of a module's parameters. They are reduced in buckets while backward goes on, and are there when it
/// returns. The hooks of the parameters keep it alive; a copy of this handle is the same.
class GradientSyncHandle {
 public:
  explicit GradientSyncHandle(std::shared_ptr<detail::GradientSync> sync) : sync_(std::move(sync)) {}

  /// While it lives, backward leaves gradients unreduced (Partial) and adds to them: for all but the last of several
  /// backward passes before an optimizer's step. The first backward after it reduces what has gathered.
  class NoSync {
   public:
    explicit NoSync(std::shared_ptr<detail::GradientSync> sync);
    ~NoSync();
    NoSync(NoSync&& other) noexcept = default;
    NoSync& operator=(NoSync&&) = delete;

   private:
    std::shared_ptr<detail::GradientSync> sync_;
  };
  [[nodiscard]] NoSync no_sync() const { return NoSync(sync_); }
  /// The same without a scope, for bindings: as many resume() as pause().
  void pause() const;
  void resume() const;

 private:
  std::shared_ptr<detail::GradientSync> sync_;
};

struct DataParallelOptions {
  /// Gradients that are reduced together.
  int64_t bucket_bytes = int64_t{25} << 20;
  /// In which gradients are reduced, where that is not their own type.
  std::optional<c10::ScalarType> reduce_dtype = {};
  /// The place along the axis whose parameters count; the others receive them. nullopt: they are equal already.
  std::optional<int> source = 0;
};

/// Replicates every parameter and buffer of `module` over `mesh`, in place, beside what other axes do to it: a
/// parameter on mesh["tp"] is then on mesh[{"dp", "tp"}]. Throws c10::ValueError, before anything changes, where a
/// parameter is on one of the axes already. Every rank calls it with the same module.
GradientSyncHandle data_parallel(torch::nn::Module& module, const DeviceMesh& mesh,
                                 const DataParallelOptions& options = {});
GradientSyncHandle data_parallel(const ModuleOutline& module, const DeviceMesh& mesh,
                                 const DataParallelOptions& options = {});

struct MixedPrecision {
  /// In which parameters are gathered and used; inputs must have it too (x.to(torch::kBFloat16)). Gradients and
  /// optimizers keep the parameters' own type.
  std::optional<c10::ScalarType> param_dtype = {};
  std::optional<c10::ScalarType> reduce_dtype = {};
};

struct FullyShardOptions {
  MixedPrecision mixed_precision = {};
  /// False: what was gathered in forward stays until backward is over. More memory, half the gathers.
  bool reshard_after_forward = true;
  /// The parts of the module whose parameters are gathered together, as names with wildcards ("blocks.*"). By default
  /// every element of the outermost ModuleList or Sequential; every other module by itself, small ones with the next.
  std::vector<std::string> units = {};
  /// Gathers the next unit, in the order of the last pass, while this one computes.
  bool prefetch = true;
  /// Parameters, their gradients and so the optimizer's state rest in the host's memory: a device holds what is in use
  /// alone, and the optimizer's step runs on the CPU. Makes no difference on a mesh of CPUs.
  bool offload = false;
  std::optional<int> source = 0;
};

/// Shards every parameter of `module` over the last axis of `mesh` and replicates it over the others, in place, beside
/// what other axes do to it. An operator that uses a parameter gets it whole and forgets it: between its uses a rank
/// has its part alone, of its gradient and its optimizer state too. Buffers are replicated. Throws as data_parallel
/// does.
GradientSyncHandle fully_shard(torch::nn::Module& module, const DeviceMesh& mesh,
                               const FullyShardOptions& options = {});
GradientSyncHandle fully_shard(const ModuleOutline& module, const DeviceMesh& mesh,
                               const FullyShardOptions& options = {});

template <class Impl>
GradientSyncHandle data_parallel(torch::nn::ModuleHolder<Impl>& module, const DeviceMesh& mesh,
                                 const DataParallelOptions& options = {}) {
  return data_parallel(*module, mesh, options);
}
template <class Impl>
GradientSyncHandle fully_shard(torch::nn::ModuleHolder<Impl>& module, const DeviceMesh& mesh,
                               const FullyShardOptions& options = {}) {
  return fully_shard(*module, mesh, options);
}

}  // namespace sherd
