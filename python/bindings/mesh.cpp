#include <ATen/ops/tensor.h>

#include <map>

#include "bindings.h"
#include "sherd/device_mesh.h"
#include "sherd/error.h"

namespace sherd::python {
namespace {

using Backends = std::vector<std::pair<std::string, std::string>>;

std::optional<std::vector<std::string>> names_of(const Mesh& mesh) {
  if (!mesh.has_names()) return std::nullopt;
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return names;
}

std::vector<MeshAxis> axes_of(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < shape.size(); ++i) axes.push_back({i < names.size() ? names[i] : std::string(), shape[i]});
  return axes;
}

int64_t axis_number(const DeviceMesh& mesh, const std::variant<int64_t, std::string>& axis) {
  if (const auto* number = std::get_if<int64_t>(&axis)) return *number;
  return mesh.mesh().axis(std::get<std::string>(axis));
}

using Axis = std::variant<int64_t, std::string>;

// Ranks in an array of any kind, as torch.distributed takes them: [[0, 1], [2, 3]], or a tensor.
Mesh mesh_value(const py::object& mesh, const std::optional<std::vector<std::string>>& names) {
  const auto array = py::module_::import("torch").attr("as_tensor")(mesh).cast<at::Tensor>();
  if (array.dim() == 0 || !c10::isIntegralType(array.scalar_type(), false)) {
    throw std::invalid_argument(ErrorText("DeviceMesh", "a mesh is an array of ranks")
                                    .fact("given", std::string(py::repr(mesh)))
                                    .help("sherd.DeviceMesh(\"cpu\", [[0, 1], [2, 3]])")
                                    .str());
  }
  const at::Tensor flat = array.to(c10::kCPU, c10::kLong).reshape({-1}).contiguous();
  const auto* first = flat.const_data_ptr<int64_t>();
  return Mesh(axes_of(array.sizes().vec(), names.value_or(std::vector<std::string>())),
              std::vector<int64_t>(first, first + flat.numel()));
}

DeviceMesh mesh_of_ranks(const std::string& device_type, const py::object& mesh,
                         const std::optional<std::vector<std::string>>& names,
                         const std::optional<std::map<std::string, std::string>>& backends) {
  Mesh ranks = mesh_value(mesh, names);
  py::module_::import("sherd._world").attr("init")();
  Backends by_axis;
  if (backends) by_axis.assign(backends->begin(), backends->end());
  return DeviceMesh(device_type, std::move(ranks), by_axis);
}

std::vector<std::unique_ptr<MeshScope>>& scopes() {
  static thread_local std::vector<std::unique_ptr<MeshScope>> entered;
  return entered;
}

}  // namespace

void bind_mesh(py::module_& module) {
  py::class_<DeviceMesh>(module, "DeviceMesh")
      .def(py::init(&mesh_of_ranks), py::arg("device_type"), py::arg("mesh"), py::kw_only(),
           py::arg("mesh_dim_names") = py::none(), py::arg("backend_override") = py::none())
      .def_property_readonly("device_type",
                             [](const DeviceMesh& self) { return c10::DeviceTypeName(self.device_type(), true); })
      .def_property_readonly("device", &DeviceMesh::device)
      .def_property_readonly("layout_mesh", &DeviceMesh::mesh)
      .def_property_readonly("ndim", [](const DeviceMesh& self) { return self.ndim(); })
      .def_property_readonly("shape", [](const DeviceMesh& self) { return py::tuple(py::cast(self.mesh().shape())); })
      .def_property_readonly("mesh",
                             [](const DeviceMesh& self) {
                               const std::vector<int64_t> ranks = self.mesh().ranks();
                               return at::tensor(ranks, c10::kInt).reshape(self.mesh().shape());
                             })
      .def_property_readonly("ranks", [](const DeviceMesh& self) { return self.mesh().ranks(); })
      .def_property_readonly("mesh_dim_names",
                             [](const DeviceMesh& self) -> py::object {
                               const auto names = names_of(self.mesh());
                               return names ? py::object(py::tuple(py::cast(*names))) : py::none();
                             })
      .def_property_readonly("world", &DeviceMesh::world)
      .def(
          "size",
          [](const DeviceMesh& self, const std::optional<Axis>& axis) {
            return axis ? self.group(axis_number(self, *axis)).size() : static_cast<int>(self.size());
          },
          py::arg("mesh_dim") = py::none())
      .def("get_rank", [](const DeviceMesh& self) { return self.world().rank(); })
      .def("get_coordinate", &DeviceMesh::coordinate)
      .def(
          "get_group", [](const DeviceMesh& self, const Axis& axis) { return self.group(axis_number(self, axis)); },
          py::arg("mesh_dim") = 0)
      .def(
          "get_local_rank",
          [](const DeviceMesh& self, const Axis& axis) { return self.local_rank(axis_number(self, axis)); },
          py::arg("mesh_dim") = 0)
      .def("__getitem__", [](const DeviceMesh& self, const std::string& axis) { return self[axis]; })
      .def("__getitem__", [](const DeviceMesh& self, const std::vector<std::string>& axes) { return self[axes]; })
      .def("flatten", &DeviceMesh::flatten, py::arg("name") = "")
      .def(
          "unflatten",
          [](const DeviceMesh& self, const Axis& axis, const std::vector<int64_t>& shape,
             const std::vector<std::string>& names) {
            return self.unflatten(axis_number(self, axis), axes_of(shape, names));
          },
          py::arg("dim"), py::arg("shape"), py::arg("names") = std::vector<std::string>())
      .def("root", &DeviceMesh::root)
      .def_static(
          "from_group",
          [](const Group& group, const std::string& device_type, const py::object&,
             const std::optional<std::vector<std::string>>& names) {
            py::module_::import("sherd._world").attr("init")();
            return DeviceMesh::from_group(group, device_type, names ? names->at(0) : "");
          },
          py::arg("group"), py::arg("device_type"), py::arg("mesh") = py::none(), py::kw_only(),
          py::arg("mesh_dim_names") = py::none())
      .def_static(
          "from_group",
          [](const std::vector<Group>& groups, const std::string& device_type, const py::object& mesh,
             const std::optional<std::vector<std::string>>& names) {
            py::module_::import("sherd._world").attr("init")();
            return DeviceMesh::from_groups(groups, device_type, mesh_value(mesh, names));
          },
          py::arg("group"), py::arg("device_type"), py::arg("mesh") = py::none(), py::kw_only(),
          py::arg("mesh_dim_names") = py::none())
      .def_static("concatenate", &DeviceMesh::concatenate, py::arg("meshes"))
      .def("__enter__",
           [](const DeviceMesh& self) {
             scopes().push_back(std::make_unique<MeshScope>(self));
             return self;
           })
      .def("__exit__", [](const DeviceMesh&, const py::args&) { scopes().pop_back(); })
      .def("__eq__",
           [](const DeviceMesh& self, const py::object& other) {
             return py::isinstance<DeviceMesh>(other) && self == other.cast<DeviceMesh>();
           })
      .def("__hash__", [](const DeviceMesh& self) { return std::hash<const void*>()(self.identity()); })
      .def("__repr__", [](const DeviceMesh& self) {
        return std::string("DeviceMesh(") + c10::DeviceTypeName(self.device_type(), true) + ", " + to_string(self) +
               ")";
      });
  module.def("init_device_mesh", [](const std::string& device_type, const std::vector<int64_t>& shape,
                                    const std::vector<std::string>& names, const Backends& backends) {
    return init_device_mesh(device_type, shape, names, backends);
  });
  module.def("current_mesh", &current_mesh);
}

}  // namespace sherd::python
