#include "sherd/data_parallel.h"

#include "parallel/data_axes.h"
#include "parallel/gradient_sync.h"
#include "parallel/same_modules.h"
#include "tensor/meta.h"

namespace sherd {

GradientSyncHandle::NoSync::NoSync(std::shared_ptr<detail::GradientSync> sync) : sync_(std::move(sync)) {
  sync_->pause();
}
GradientSyncHandle::NoSync::~NoSync() {
  if (sync_) sync_->resume();
}
void GradientSyncHandle::pause() const { sync_->pause(); }
void GradientSyncHandle::resume() const { sync_->resume(); }

GradientSyncHandle data_parallel(const ModuleOutline& module, const DeviceMesh& mesh,
                                 const DataParallelOptions& options) {
  detail::compare_modules("data_parallel", module, mesh);
  const auto plans = detail::plan_data_axes("data_parallel", module.parameters, mesh, /*shards=*/false);
  detail::put_on_data_axes(plans, options.source);
  detail::replicate_buffers(module.buffers, mesh, options.source);
  auto sync = std::make_shared<detail::GradientSync>(options.reduce_dtype);
  // Gradients come in about the reverse order of the parameters.
  std::vector<detail::GradientSync::Member> bucket;
  int64_t bytes = 0;
  const auto close = [&] {
    if (!bucket.empty()) sync->add_bucket(bucket);
    bucket.clear();
    bytes = 0;
  };
  for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan) {
    if (!plan->tensor.requires_grad()) continue;
    const auto size = detail::meta_of(plan->tensor)->local.nbytes();
    const bool fits = bucket.empty() || (bytes + static_cast<int64_t>(size) <= options.bucket_bytes &&
                                         detail::meta_of(bucket.front().parameter)->spec->mesh == plan->mesh);
    if (!fits) close();
    bucket.push_back({plan->tensor, plan->data_axes});
    bytes += static_cast<int64_t>(size);
  }
  close();
  return GradientSyncHandle(std::move(sync));
}

GradientSyncHandle data_parallel(torch::nn::Module& module, const DeviceMesh& mesh,
                                 const DataParallelOptions& options) {
  return data_parallel(outline_of(module), mesh, options);
}

}  // namespace sherd
