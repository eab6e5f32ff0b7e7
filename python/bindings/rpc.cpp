// Tensors of other ranks.

#include "sherd/rpc.h"

#include "bindings.h"

namespace sherd::python {
namespace {

std::chrono::milliseconds milliseconds_of(std::optional<double> seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds.value_or(0) * 1000));
}

}  // namespace

void bind_rpc(py::module_& module) {
  py::class_<RemoteTensor>(module, "RemoteTensor")
      .def_property_readonly("owner", &RemoteTensor::owner)
      .def(
          "to_here",
          [](const RemoteTensor& self, std::optional<double> timeout) {
            return self.to_here(milliseconds_of(timeout));
          },
          py::arg("timeout") = py::none(), ReleaseGil())
      .def("__repr__",
           [](const RemoteTensor& self) { return "RemoteTensor(of rank " + std::to_string(self.owner()) + ")"; });
  module.def(
      "init_rpc",
      [](const World& world, const std::string& name, std::optional<double> timeout, int threads) {
        init_rpc(world, {.name = name, .timeout = milliseconds_of(timeout), .threads = threads});
      },
      ReleaseGil());
  module.def("shutdown_rpc", &shutdown_rpc, ReleaseGil());
  module.def("has_rpc", &has_rpc);
  module.def("rpc_names", &rpc_names);
  module.def("share_tensors", &share_tensors, ReleaseGil());
}

}  // namespace sherd::python
