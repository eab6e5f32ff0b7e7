#include "sherd/collectives.h"

#include "bindings.h"
#include "reduce_op.h"

namespace sherd::python {
namespace {

using Numels = std::vector<int64_t>;

// with sherd.CommRecorder() as recorder: ...
class PyRecorder {
 public:
  void enter() { recorder_.emplace(); }
  void exit() {
    calls_ = recorder_->calls();
    text_ = recorder_->to_string();
    recorder_.reset();
  }
  const std::vector<CollectiveCall>& calls() const { return recorder_ ? recorder_->calls() : calls_; }
  int64_t bytes() const {
    int64_t total = 0;
    for (const CollectiveCall& call : calls()) total += call.bytes;
    return total;
  }
  std::string text() const { return recorder_ ? recorder_->to_string() : text_; }

 private:
  std::optional<CommRecorder> recorder_;
  std::vector<CollectiveCall> calls_;  // when it is over
  std::string text_;
};

}  // namespace

void bind_collectives(py::module_& module) {
  py::class_<Work>(module, "Work").def("wait", &Work::wait, ReleaseGil());
  module.def(
      "all_gather",
      [](const Group& group, const at::Tensor& out, const at::Tensor& in, const std::optional<Numels>& numels) {
        return numels ? all_gather_uneven(group, out, in, *numels) : all_gather(group, out, in);
      },
      py::arg("group"), py::arg("out"), py::arg("input"), py::arg("numels") = py::none(), ReleaseGil());
  module.def(
      "all_reduce",
      [](const Group& group, const at::Tensor& inout, const std::string& op) {
        return all_reduce(group, inout, reduce_op_of("all_reduce", op));
      },
      py::arg("group"), py::arg("tensor"), py::arg("op") = "sum", ReleaseGil());
  module.def(
      "reduce_scatter",
      [](const Group& group, const at::Tensor& out, const at::Tensor& in, const std::string& op, const Numels& numels) {
        return reduce_scatter(group, out, in, reduce_op_of("reduce_scatter", op), numels);
      },
      py::arg("group"), py::arg("out"), py::arg("input"), py::arg("op") = "sum", py::arg("numels") = Numels(),
      ReleaseGil());
  module.def(
      "all_to_all",
      [](const Group& group, const at::Tensor& out, const at::Tensor& in, const Numels& out_numels,
         const Numels& in_numels) { return all_to_all(group, out, in, out_numels, in_numels); },
      py::arg("group"), py::arg("out"), py::arg("input"), py::arg("out_numels") = Numels(),
      py::arg("input_numels") = Numels(), ReleaseGil());
  module.def("broadcast", &broadcast, py::arg("group"), py::arg("tensor"), py::arg("root"), ReleaseGil());
  module.def(
      "scatter",
      [](const Group& group, const at::Tensor& out, const std::optional<at::Tensor>& in, int root,
         const Numels& numels) { return scatter(group, out, in.value_or(at::Tensor()), root, numels); },
      py::arg("group"), py::arg("out"), py::arg("input"), py::arg("root"), py::arg("numels") = Numels(), ReleaseGil());
  module.def("send", &send, py::arg("group"), py::arg("tensor"), py::arg("to"), py::arg("tag") = 0, ReleaseGil());
  module.def("receive", &receive, py::arg("group"), py::arg("tensor"), py::arg("source"), py::arg("tag") = 0,
             ReleaseGil());
  module.def("barrier", &barrier, py::arg("group"), ReleaseGil());
  module.def(
      "agree",
      [](const Group& group, const std::string& operation, const py::function& check) {
        agree(group, operation, [&] {
          try {
            check();
          } catch (const py::error_already_set& error) {
            throw std::runtime_error(message_of(error));
          }
        });
      },
      py::arg("group"), py::arg("operation"), py::arg("check"));
  module.def("all_gather_text", &all_gather_text, py::arg("group"), py::arg("text"), ReleaseGil());

  py::class_<CollectiveCall>(module, "CollectiveCall")
      .def_readonly("name", &CollectiveCall::name)
      .def_readonly("group", &CollectiveCall::group)
      .def_readonly("dtype", &CollectiveCall::dtype)
      .def_readonly("numel", &CollectiveCall::numel)
      .def_readonly("bytes", &CollectiveCall::bytes)
      .def_readonly("step", &CollectiveCall::step)
      .def("__repr__", [](const CollectiveCall& self) {
        return self.name + (self.dtype.empty() ? "" : " " + self.dtype + "[" + std::to_string(self.numel) + "]") +
               " on " + self.group;
      });
  py::class_<PyRecorder>(module, "CommRecorder")
      .def(py::init<>())
      .def(
          "__enter__",
          [](PyRecorder& self) -> PyRecorder& {
            self.enter();
            return self;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](PyRecorder& self, const py::args&) { self.exit(); })
      .def_property_readonly("calls", &PyRecorder::calls)
      .def_property_readonly("bytes", &PyRecorder::bytes)
      .def("__str__", &PyRecorder::text);
}

}  // namespace sherd::python
