#include <ATen/core/LegacyTypeDispatch.h>

#include <map>

#include "parallel/data_axes.h"
#include "parallel/gradient_sync.h"
#include "parallel/same_modules.h"
#include "parallel/unit_names.h"
#include "parallel/units.h"
#include "sherd/data_parallel.h"
#include "tensor/meta.h"

namespace sherd {
namespace {

using detail::DataAxisPlan;

// Between its uses the parameter's part lies in the host's memory, from where it is copied at the full rate. The
// parameter is still a tensor of the device: so are its gradients until they are reduced.
void rest_in_host(const at::Tensor& parameter) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor& local = detail::meta_of(parameter)->local;
  if (!local.is_cpu()) local = local.cpu().pin_memory();
}

// Says along which axes operators get the parameter whole.
void mark(const DataAxisPlan& plan, bool even_alone) {
  uint64_t gathers = 0;
  for (int64_t axis = 0; axis < plan.mesh.ndim(); ++axis) {
    const bool cut = is_shard(plan.placements[static_cast<size_t>(axis)]);
    if ((plan.data_axes >> axis & 1) != 0 && cut && (plan.mesh.size(axis) > 1 || even_alone)) {
      gathers |= uint64_t{1} << axis;
    }
  }
  detail::DTensorMeta* meta = detail::meta_of(plan.tensor);
  const detail::Spec& spec = *meta->spec;
  meta->spec = detail::intern_spec(spec.mesh, spec.placements, spec.sizes, spec.strides, nullptr, gathers);
}

}  // namespace

GradientSyncHandle fully_shard(const ModuleOutline& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  detail::compare_modules("fully_shard", module, mesh);
  const std::vector<std::string> names = detail::unit_names(module, options.units);
  const auto plans = detail::plan_data_axes("fully_shard", module.parameters, mesh, /*shards=*/true);
  detail::put_on_data_axes(plans, options.source);
  detail::replicate_buffers(module.buffers, mesh, options.source);
  auto sync = std::make_shared<detail::GradientSync>(options.mixed_precision.reduce_dtype);
  auto units =
      std::make_shared<detail::Units>(detail::Units::Options{.dtype = options.mixed_precision.param_dtype,
                                                             .keep_until_backward = !options.reshard_after_forward,
                                                             .prefetch = options.prefetch});

  // Parameters of one unit and one mesh, in the order in which they come first.
  std::vector<std::string> order;
  std::map<std::string, std::vector<const DataAxisPlan*>> by_unit;
  for (size_t i = 0; i < plans.size(); ++i) {
    const DataAxisPlan& plan = plans[i];
    mark(plan, options.mixed_precision.param_dtype.has_value() || options.offload);
    if (options.offload && detail::meta_of(plan.tensor)->spec->gathers != 0) rest_in_host(plan.tensor);
    const std::string key = names[i] + " " + to_string(plan.mesh);
    auto& unit = by_unit[key];
    if (unit.empty()) order.push_back(key);
    unit.push_back(&plan);
  }
  for (const std::string& key : order) {
    std::vector<at::Tensor> gathered;
    std::vector<detail::GradientSync::Member> reduced;
    for (const DataAxisPlan* plan : by_unit[key]) {
      if (detail::meta_of(plan->tensor)->spec->gathers != 0) gathered.push_back(plan->tensor);
      if (plan->tensor.requires_grad()) reduced.push_back({plan->tensor, plan->data_axes});
    }
    if (!gathered.empty()) units->add_unit(gathered);
    if (!reduced.empty()) sync->add_bucket(reduced);
  }
  sync->on_end([units] { units->release(); });  // which keeps them, too
  return GradientSyncHandle(std::move(sync));
}

GradientSyncHandle fully_shard(torch::nn::Module& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  return fully_shard(outline_of(module), mesh, options);
}

}  // namespace sherd
