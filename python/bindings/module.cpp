#include <torch/csrc/Exceptions.h>
#include <torch/version.h>

#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>

#include "bindings.h"
#include "sherd/blocking.h"

namespace sherd::python {
namespace {

// A rank thread that waits for others lets them run Python.
void* release_gil() { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }
void take_gil(void* state) {
  if (state != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

std::terminate_handler earlier_terminate = nullptr;

// A thread of a c10d backend that lets go of a Python tensor while the interpreter ends is made to exit by CPython
// before 3.14, in the middle of a destructor: std::terminate, and a program that had succeeded ends with an abort.
// torch's own DTensor does so too, for it keeps backends beyond destroy_process_group. As CPython 3.14 does, such a
// thread sleeps here until the process is gone; not for ever, for somebody may wait for it.
[[noreturn]] void let_the_interpreter_end() {
  if (!std::current_exception() && interpreter_is_ending()) std::this_thread::sleep_for(std::chrono::seconds(10));
  if (earlier_terminate != nullptr) earlier_terminate();
  std::abort();
}

// The exceptions of sherd as Python's: the rooms without libtorch throw std::invalid_argument for bad input, the others
// c10's classes, which torch translates.
void translate(std::exception_ptr error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::invalid_argument& bad) {
    py::set_error(PyExc_ValueError, bad.what());
  } catch (python_error& raised) {
    raised.restore();  // by a function of Python that an operator called
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(error);
  }
}

}  // namespace
}  // namespace sherd::python

PYBIND11_MODULE(_C, module) {
  using namespace sherd::python;
  sherd::set_blocking_hooks({release_gil, take_gil});
  earlier_terminate = std::set_terminate(let_the_interpreter_end);
  py::register_local_exception_translator(translate);
  module.attr("torch_version") = TORCH_VERSION;
  bind_layout(module);
  bind_world(module);
  bind_collectives(module);
  bind_mesh(module);
  bind_tensor(module);
  bind_moving(module);
  bind_parallel(module);
  bind_random(module);
  bind_rpc(module);
  bind_checkpoint(module);
  bind_checkpoint_files(module);
  bind_comm_debug(module);
  bind_explain(module);
  bind_local_shards(module);
  bind_sharded(module);
  bind_pictures(module);
  bind_training(module);
  bind_xla(module);
}
