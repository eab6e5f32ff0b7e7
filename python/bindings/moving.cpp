// Moving the values of DTensors.

#include "bindings.h"
#include "sherd/redistribute.h"

namespace sherd::python {
namespace {

using Prefer = RedistributeOptions::Prefer;

RedistributeOptions options_of(const std::string& prefer, int64_t staging_bytes,
                               std::optional<c10::ScalarType> reduce_dtype, std::optional<c10::ScalarType> move_dtype,
                               bool relabel, bool async) {
  RedistributeOptions options{.staging_bytes = staging_bytes,
                              .reduce_dtype = reduce_dtype,
                              .move_dtype = move_dtype,
                              .relabel = relabel,
                              .async = async};
  if (prefer == "bytes") options.prefer = Prefer::bytes;
  if (prefer == "latency") options.prefer = Prefer::latency;
  return options;
}

}  // namespace

void bind_moving(py::module_& module) {
  py::class_<RedistributeOptions>(module, "RedistributeOptions").def(py::init(&options_of));
  module.def(
      "redistribute",
      [](const at::Tensor& tensor, Placements placements, const RedistributeOptions& options) {
        return redistribute(tensor, std::move(placements), options);
      },
      ReleaseGil());
  module.def(
      "redistribute_to_mesh",
      [](const at::Tensor& tensor, const DeviceMesh& mesh, Placements placements, const RedistributeOptions& options) {
        return redistribute(tensor, mesh, std::move(placements), options);
      },
      ReleaseGil());
  module.def(
      "redistribute_together",
      [](const std::vector<at::Tensor>& tensors, const std::optional<DeviceMesh>& mesh,
         const std::vector<Placements>& placements, const RedistributeOptions& options) {
        return mesh ? redistribute(tensors, *mesh, placements, options) : redistribute(tensors, placements, options);
      },
      ReleaseGil());
  py::class_<PendingTensor>(module, "PendingTensor").def("wait", &PendingTensor::wait, ReleaseGil());
  module.def(
      "redistribute_async",
      [](const at::Tensor& tensor, const DeviceMesh& mesh, Placements placements, const RedistributeOptions& options) {
        return redistribute_async(tensor, mesh, std::move(placements), options);
      },
      ReleaseGil());
  module.def(
      "read_boxes",
      [](const at::Tensor& tensor, const std::vector<Box>& boxes, int64_t staging_bytes) {
        return read_boxes(tensor, boxes, {.staging_bytes = staging_bytes});
      },
      ReleaseGil());
  module.def(
      "from_boxes",
      [](const std::vector<std::pair<Box, at::Tensor>>& boxes, const Dims& shape, const DeviceMesh& mesh,
         Placements placements, c10::ScalarType dtype, int64_t staging_bytes) {
        std::vector<BoxTensor> pieces;
        for (const auto& [box, tensor] : boxes) pieces.push_back({box, tensor});
        return from_boxes(pieces, shape, mesh, std::move(placements), dtype, {.staging_bytes = staging_bytes});
      },
      ReleaseGil());
  module.def("redistribution_text",
             [](const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                const RedistributeOptions& options) { return redistribution_text(tensor, mesh, placements, options); });
  module.def(
      "measure_costs", [](const World& world) { return to_string(measure_costs(world)); }, ReleaseGil());
  module.def("set_costs", [](const std::string& text) { set_costs(parse_costs(text)); });
}

}  // namespace sherd::python
