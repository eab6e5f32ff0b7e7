#include <torch/csrc/Exceptions.h>
#include <torch/version.h>

#include <stdexcept>

#include "bindings.h"
#include "sherd/blocking.h"

namespace sherd::python {
namespace {

// A rank thread that waits for others lets them run Python.
void* release_gil() { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }
void take_gil(void* state) {
  if (state != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

// The exceptions of sherd as Python's: the rooms without libtorch throw std::invalid_argument for bad input, the others
// c10's classes, which torch translates.
void translate(std::exception_ptr error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::invalid_argument& bad) {
    py::set_error(PyExc_ValueError, bad.what());
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(error);
  }
}

}  // namespace
}  // namespace sherd::python

PYBIND11_MODULE(_C, module) {
  using namespace sherd::python;
  sherd::set_blocking_hooks({release_gil, take_gil});
  py::register_local_exception_translator(translate);
  module.attr("torch_version") = TORCH_VERSION;
  bind_layout(module);
  bind_world(module);
  bind_collectives(module);
  bind_mesh(module);
  bind_tensor(module);
  bind_explain(module);
}
