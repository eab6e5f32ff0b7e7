#include <pybind11/complex.h>

#include "bindings.h"
#include "sherd/dtensor.h"
#include "tensor_options.h"

namespace sherd::python {
namespace {

using Factory = at::Tensor (*)(at::IntArrayRef, const DeviceMesh&, Placements, at::TensorOptions);

void bind_factory(py::module_& module, const char* name, Factory factory) {
  module.def(
      name,
      [factory](const std::vector<int64_t>& shape, const DeviceMesh& mesh, Placements placements,
                std::optional<c10::ScalarType> dtype, bool requires_grad) {
        return factory(shape, mesh, std::move(placements), options_of(dtype, requires_grad));
      },
      ReleaseGil());
}

class PyExplicit {
 public:
  explicit PyExplicit(const std::string& mode) {
    if (mode == "allow") mode_ = ExplicitRedistribution::Mode::allow;
    if (mode == "warn") mode_ = ExplicitRedistribution::Mode::warn;
  }
  void enter() { scopes_.push_back(std::make_unique<ExplicitRedistribution>(mode_)); }
  void exit() { scopes_.pop_back(); }

 private:
  ExplicitRedistribution::Mode mode_ = ExplicitRedistribution::Mode::error;
  std::vector<std::unique_ptr<ExplicitRedistribution>> scopes_;
};

}  // namespace

at::Scalar scalar_of(const py::handle& number) {
  if (py::isinstance<py::bool_>(number)) return number.cast<bool>();
  if (py::isinstance<py::int_>(number)) return number.cast<int64_t>();
  if (PyComplex_Check(number.ptr())) return c10::complex<double>(number.cast<std::complex<double>>());
  return number.cast<double>();
}

void bind_tensor(py::module_& module) {
  module.def("is_dtensor", &is_dtensor);
  module.def("mesh_of", &mesh_of);
  module.def("placements_of", [](const at::Tensor& tensor) { return py::tuple(py::cast(placements_of(tensor))); });
  module.def("layout_of", &layout_of);
  module.def("describe", [](const at::Tensor& tensor) { return to_string(tensor); });
  module.def("visualize", &visualize);
  module.def(
      "distribute_tensor",
      [](const at::Tensor& tensor, const DeviceMesh& mesh, Placements placements, std::optional<int> source) {
        return distribute_tensor(tensor, mesh, std::move(placements), {.source = source});
      },
      ReleaseGil());
  module.def(
      "distribute_parameter_",
      [](at::Tensor tensor, const DeviceMesh& mesh, Placements placements, std::optional<int> source) {
        distribute_parameter_(tensor, mesh, std::move(placements), {.source = source});
      },
      ReleaseGil());
  module.def(
      "from_local",
      [](const at::Tensor& local, const DeviceMesh& mesh, Placements placements, bool check, std::optional<Dims> shape,
         std::optional<Dims> stride, std::optional<Placements> grad_placements) {
        return from_local(local, mesh, std::move(placements),
                          {.check = check,
                           .shape = std::move(shape),
                           .stride = std::move(stride),
                           .grad_placements = std::move(grad_placements)});
      },
      ReleaseGil());
  module.def("to_local", &to_local, ReleaseGil());
  module.def("full_tensor", &full_tensor, ReleaseGil());
  bind_factory(module, "zeros", &zeros);
  bind_factory(module, "ones", &ones);
  bind_factory(module, "empty", &empty);
  module.def("full", [](const std::vector<int64_t>& shape, const py::object& value, const DeviceMesh& mesh,
                        Placements placements, std::optional<c10::ScalarType> dtype, bool requires_grad) {
    return full(shape, scalar_of(value), mesh, std::move(placements), options_of(dtype, requires_grad));
  });
  module.def("arange",
             [](const py::object& start, const py::object& end, const py::object& step, const DeviceMesh& mesh,
                Placements placements, std::optional<c10::ScalarType> dtype, bool requires_grad) {
               return arange(scalar_of(start), scalar_of(end), scalar_of(step), mesh, std::move(placements),
                             options_of(dtype, requires_grad));
             });
  py::class_<PyExplicit>(module, "ExplicitRedistribution")
      .def(py::init<std::string>(), py::arg("mode") = "error")
      .def("__enter__", &PyExplicit::enter)
      .def("__exit__", [](PyExplicit& self, const py::args&) { self.exit(); });
  module.def("set_strict", &set_strict, py::arg("on"));
  module.def("register_rule", &register_rule, py::arg("op"), py::arg("rule"));
}

}  // namespace sherd::python
