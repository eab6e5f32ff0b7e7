#pragma once
// The pieces of sherd._C, the extension under the Python package. What users see, with its documentation, is in
// python/sherd/.

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace sherd::python {

namespace py = pybind11;

/// Others may run Python while this function does its work.
using ReleaseGil = py::call_guard<py::gil_scoped_release>;

/// "ValueError: what is wrong", or the text alone where it has sherd's form already. With the interpreter's lock.
std::string message_of(const py::error_already_set& error);

/// A number of Python. Throws py::cast_error for something else.
at::Scalar scalar_of(const py::handle& number);

void bind_layout(py::module_& module);
void bind_world(py::module_& module);
void bind_collectives(py::module_& module);
void bind_mesh(py::module_& module);
void bind_tensor(py::module_& module);
void bind_moving(py::module_& module);
void bind_parallel(py::module_& module);
void bind_pictures(py::module_& module);
void bind_random(py::module_& module);
void bind_rpc(py::module_& module);
void bind_checkpoint(py::module_& module);
void bind_checkpoint_files(py::module_& module);
void bind_comm_debug(py::module_& module);
void bind_explain(py::module_& module);
void bind_local_shards(py::module_& module);
void bind_sharded(py::module_& parent);
void bind_training(py::module_& module);
void bind_xla(py::module_& module);

}  // namespace sherd::python
