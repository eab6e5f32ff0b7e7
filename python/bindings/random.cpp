#include "sherd/random.h"

#include "bindings.h"
#include "tensor_options.h"

namespace sherd::python {
namespace {

RngMode mode_of(const std::string& mode) {
  if (mode == "offset_based") return RngMode::offset_based;
  return mode == "torch_exact" ? RngMode::torch_exact : RngMode::by_position;
}

using Shape = std::vector<int64_t>;
using Dtype = std::optional<c10::ScalarType>;
using Given = std::optional<at::Generator>;

class PyGeneratorScope {
 public:
  explicit PyGeneratorScope(const at::Generator& generator) : generator_(generator) {}
  void enter() { scopes_.push_back(std::make_unique<GeneratorScope>(generator_)); }
  void exit() { scopes_.pop_back(); }

 private:
  Generator generator_;
  std::vector<std::unique_ptr<GeneratorScope>> scopes_;
};

}  // namespace

void bind_random(py::module_& module) {
  module.def("make_generator",
             [](uint64_t seed, const std::string& mode, const std::optional<DeviceMesh>& mesh) -> at::Generator {
               return mesh ? Generator(*mesh, seed, mode_of(mode)) : Generator(seed, mode_of(mode));
             });
  module.def("manual_seed", [](uint64_t seed, const std::string& mode, const std::optional<DeviceMesh>& mesh) {
    if (mesh) {
      manual_seed(*mesh, seed, mode_of(mode));
    } else {
      manual_seed(seed, mode_of(mode));
    }
  });
  module.def("current_generator", [](const std::optional<DeviceMesh>& mesh) -> at::Generator {
    return mesh ? current_generator(*mesh) : default_generator();
  });
  py::class_<PyGeneratorScope>(module, "GeneratorScope")
      .def(py::init<at::Generator>(), py::arg("generator"))
      .def("__enter__", &PyGeneratorScope::enter)
      .def("__exit__", [](PyGeneratorScope& self, const py::args&) { self.exit(); });
  module.def(
      "rand",
      [](const Shape& shape, const DeviceMesh& mesh, Placements placements, Dtype dtype, bool grad,
         const Given& generator) {
        return rand(shape, mesh, std::move(placements), options_of(dtype, grad), generator);
      },
      ReleaseGil());
  module.def(
      "normal",
      [](double mean, double deviation, const Shape& shape, const DeviceMesh& mesh, Placements placements, Dtype dtype,
         bool grad, const Given& generator) {
        return normal(mean, deviation, shape, mesh, std::move(placements), options_of(dtype, grad), generator);
      },
      ReleaseGil());
  module.def(
      "randint",
      [](int64_t low, int64_t high, const Shape& shape, const DeviceMesh& mesh, Placements placements, Dtype dtype,
         bool grad, const Given& generator) {
        return randint(low, high, shape, mesh, std::move(placements), options_of(dtype, grad), generator);
      },
      ReleaseGil());
  module.def(
      "randperm",
      [](int64_t n, const DeviceMesh& mesh, Placements placements, Dtype dtype, const Given& generator) {
        return randperm(n, mesh, std::move(placements), options_of(dtype, false), generator);
      },
      ReleaseGil());
}

}  // namespace sherd::python
