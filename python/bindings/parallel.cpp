// Modules of Python, parallel.

#include "bindings.h"
#include "sherd/clip_grad.h"
#include "sherd/data_parallel.h"

namespace sherd::python {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

ModuleOutline outline(const Named& parameters, const Named& buffers, std::vector<std::string> modules,
                      std::vector<std::string> in_lists, std::vector<std::string> in_rows) {
  const auto tensors = [](const Named& named) {
    std::vector<NamedTensor> result;
    for (const auto& [name, tensor] : named) result.push_back({name, tensor});
    return result;
  };
  return {tensors(parameters), tensors(buffers), std::move(modules), std::move(in_lists), std::move(in_rows)};
}

}  // namespace

void bind_parallel(py::module_& module) {
  py::class_<ModuleOutline>(module, "ModuleOutline").def(py::init(&outline));
  py::class_<GradientSyncHandle>(module, "GradientSync")
      .def("pause", &GradientSyncHandle::pause)
      .def("resume", &GradientSyncHandle::resume);
  module.def(
      "clip_grad_norm_",
      [](const std::vector<at::Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
        return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite);
      },
      ReleaseGil());
  module.def("clip_grad_value_", &clip_grad_value_, ReleaseGil());
  module.def(
      "data_parallel",
      [](const ModuleOutline& outline, const DeviceMesh& mesh, int64_t bucket_bytes,
         std::optional<c10::ScalarType> reduce_dtype, std::optional<int> source) {
        return data_parallel(outline, mesh,
                             {.bucket_bytes = bucket_bytes, .reduce_dtype = reduce_dtype, .source = source});
      },
      ReleaseGil());
  module.def(
      "fully_shard",
      [](const ModuleOutline& outline, const DeviceMesh& mesh, std::optional<c10::ScalarType> param_dtype,
         std::optional<c10::ScalarType> reduce_dtype, bool reshard_after_forward, std::vector<std::string> units,
         bool prefetch, bool offload, std::optional<int> source) {
        return fully_shard(outline, mesh,
                           {.mixed_precision = {.param_dtype = param_dtype, .reduce_dtype = reduce_dtype},
                            .reshard_after_forward = reshard_after_forward,
                            .units = std::move(units),
                            .prefetch = prefetch,
                            .offload = offload,
                            .source = source});
      },
      ReleaseGil());
}

}  // namespace sherd::python
