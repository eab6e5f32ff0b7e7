// XLA's shardings, and the bridge by which tensors go to XLA.

#include "bindings.h"
#include "sherd/dtensor.h"
#include "sherd/xla_bridge.h"
#include "sherd/xla_sharding.h"

namespace sherd::python {
namespace {

const char* kind_name(XlaSharding::Kind kind) {
  switch (kind) {
    case XlaSharding::Kind::replicated:
      return "replicated";
    case XlaSharding::Kind::maximal:
      return "maximal";
    case XlaSharding::Kind::manual:
      return "manual";
    case XlaSharding::Kind::unknown:
      return "unknown";
    case XlaSharding::Kind::unreduced:
      return "unreduced";
    case XlaSharding::Kind::tiled:
      break;
  }
  return "tiled";
}

const char* subgroup_name(XlaSharding::Subgroup group) {
  switch (group) {
    case XlaSharding::Subgroup::manual:
      return "manual";
    case XlaSharding::Subgroup::unreduced:
      return "unreduced";
    case XlaSharding::Subgroup::replicated:
      break;
  }
  return "replicated";
}

}  // namespace

void bind_xla(py::module_& module) {
  py::class_<XlaSharding>(module, "XlaSharding")
      .def(py::init([](const std::string& text) { return parse_xla_sharding(text); }), py::arg("text"))
      .def_static(
          "from_bytes", [](const py::bytes& bytes) { return parse_op_sharding(std::string(bytes)); }, py::arg("bytes"))
      .def("to_bytes", [](const XlaSharding& self) { return py::bytes(to_op_sharding(self)); })
      .def_property_readonly("kind", [](const XlaSharding& self) { return kind_name(self.kind); })
      .def_property_readonly("tiles", [](const XlaSharding& self) { return py::tuple(py::cast(self.tiles)); })
      .def_property_readonly("devices", [](const XlaSharding& self) { return py::tuple(py::cast(self.devices)); })
      .def_property_readonly("subgroups",
                             [](const XlaSharding& self) {
                               std::vector<std::string> names;
                               for (const auto group : self.subgroups) names.emplace_back(subgroup_name(group));
                               return py::tuple(py::cast(names));
                             })
      .def(
          "box",
          [](const XlaSharding& self, const Dims& shape, int64_t device) { return xla_box(self, shape, device); },
          py::arg("shape"), py::arg("device"))
      .def(
          "layout",
          [](const XlaSharding& self, const Mesh& mesh, const Dims& shape) {
            return Layout{mesh, shape, placements_of(self, mesh, shape)};
          },
          py::arg("mesh"), py::arg("shape"))
      .def("__eq__",
           [](const XlaSharding& self, const py::object& other) {
             return py::isinstance<XlaSharding>(other) && self == other.cast<XlaSharding>();
           })
      .def("__hash__", [](const XlaSharding& self) { return std::hash<std::string>()(to_string(self)); })
      .def("__str__", [](const XlaSharding& self) { return to_string(self); })
      .def("__repr__", [](const XlaSharding& self) { return "XlaSharding(\"" + to_string(self) + "\")"; })
      .def(py::pickle([](const XlaSharding& self) { return to_string(self); },
                      [](const std::string& text) { return parse_xla_sharding(text); }));
  module.def("xla_sharding", [](const Layout& layout) { return xla_sharding(layout); });
  module.def("is_xla_marked", &is_xla_marked);
  module.def("register_xla_bridge",
             [](std::function<at::Tensor(at::Tensor, XlaSharding)> mark, std::function<bool(at::Tensor)> is_marked,
                std::function<at::Tensor(at::Tensor)> gather) {
               register_xla_bridge({std::move(mark), std::move(is_marked), std::move(gather)});
             });
}

}  // namespace sherd::python
