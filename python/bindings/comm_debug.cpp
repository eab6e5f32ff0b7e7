#include "sherd/comm_debug.h"

#include "bindings.h"
#include "sherd/explain_step.h"

namespace sherd::python {
namespace {

using Names = std::vector<std::pair<std::string, at::Tensor>>;

// A scope of Python begins and ends when Python says so.
class PyDebug {
 public:
  PyDebug(Names names, bool operators) : names_(std::move(names)), options_{.operators = operators} {}
  void enter() { mode_ = std::make_unique<CommDebugMode>(names_, options_); }
  void exit() {
    if (mode_) mode_->stop();
  }
  const CommDebugMode& mode() const {
    if (!mode_) {
      throw py::value_error("CommDebugMode: it has not begun\n  help: with sherd.CommDebugMode(model) as debug: ...");
    }
    return *mode_;
  }

 private:
  Names names_;
  CommDebugOptions options_;
  std::unique_ptr<CommDebugMode> mode_;
};

class PyScope {
 public:
  explicit PyScope(std::string name) : name_(std::move(name)) {}
  void enter() { scope_ = std::make_unique<NamedScope>(name_); }
  void exit() { scope_.reset(); }

 private:
  std::string name_;
  std::unique_ptr<NamedScope> scope_;
};

std::map<std::string, int64_t> counts(const PyDebug& self, const std::optional<std::string>& pass) {
  if (!pass) return self.mode().counts();
  if (*pass != "forward" && *pass != "backward") {
    throw py::value_error("CommDebugMode: there is no such pass\n  pass: " + *pass +
                          "\n  help: \"forward\" or \"backward\"");
  }
  return self.mode().counts(*pass == "forward" ? CommPass::forward : CommPass::backward);
}

}  // namespace

void bind_comm_debug(py::module_& module) {
  py::class_<CommRecord>(module, "CommRecord")
      .def_readonly("collective", &CommRecord::collective)
      .def_readonly("axis", &CommRecord::axis)
      .def_readonly("group", &CommRecord::group)
      .def_readonly("dtype", &CommRecord::dtype)
      .def_readonly("numel", &CommRecord::numel)
      .def_readonly("bytes", &CommRecord::bytes)
      .def_readonly("operation", &CommRecord::operation)
      .def_readonly("called_by", &CommRecord::called_by)
      .def_readonly("parameters", &CommRecord::parameters)
      .def_readonly("module", &CommRecord::module)
      .def_readonly("scope", &CommRecord::scope)
      .def_property_readonly("backward", [](const CommRecord& self) { return self.pass == CommPass::backward; })
      .def_readonly("background", &CommRecord::background)
      .def_readonly("operand_from", &CommRecord::operand_from)
      .def_readonly("operand_to", &CommRecord::operand_to)
      .def_readonly("start_ns", &CommRecord::start_ns)
      .def_readonly("duration_ns", &CommRecord::duration_ns)
      .def("__repr__", [](const CommRecord& self) {
        return self.collective + "@" + self.axis + " for " + (self.operation.empty() ? "the program" : self.operation) +
               (self.module.empty() ? "" : " of " + self.module);
      });
  py::class_<PyDebug>(module, "CommDebug")
      .def(py::init<Names, bool>())
      .def("enter", &PyDebug::enter)
      .def("exit", &PyDebug::exit)
      .def("records", [](const PyDebug& self) { return self.mode().records(); })
      .def("counts", &counts)
      .def("bytes", [](const PyDebug& self) { return self.mode().bytes(); })
      .def("table", [](const PyDebug& self) { return to_string(self.mode()); })
      .def("json", [](const PyDebug& self) { return to_json(self.mode()); })
      .def("trace_json", [](const PyDebug& self) { return trace_json(self.mode()); })
      .def(
          "save_trace",
          [](const PyDebug& self, const std::string& path, const std::optional<Group>& group) {
            group ? save_trace(self.mode(), path, *group) : save_trace(self.mode(), path);
          },
          ReleaseGil())
      .def("explain", [](const PyDebug& self) { return explain_step(self.mode()); });
  py::class_<PyScope>(module, "NamedScope")
      .def(py::init<std::string>())
      .def("enter", &PyScope::enter)
      .def("exit", &PyScope::exit);

  py::class_<StepExplanation::Item>(module, "StepItem")
      .def_property_readonly("backward", [](const StepExplanation::Item& s) { return s.pass == CommPass::backward; })
      .def_readonly("operation", &StepExplanation::Item::operation)
      .def_readonly("module", &StepExplanation::Item::module)
      .def_readonly("parameters", &StepExplanation::Item::parameters)
      .def_readonly("scope", &StepExplanation::Item::scope)
      .def_readonly("collectives", &StepExplanation::Item::collectives)
      .def_readonly("bytes", &StepExplanation::Item::bytes)
      .def_readonly("operands", &StepExplanation::Item::operands)
      .def_readonly("moved_to", &StepExplanation::Item::moved_to)
      .def_readonly("why", &StepExplanation::Item::why)
      .def_readonly("instead", &StepExplanation::Item::instead);
  py::class_<StepExplanation>(module, "StepExplanation")
      .def_readonly("bytes", &StepExplanation::bytes)
      .def_readonly("calls", &StepExplanation::calls)
      .def_readonly("items", &StepExplanation::items)
      .def("json", [](const StepExplanation& self) { return to_json(self); })
      .def("__str__", [](const StepExplanation& self) { return to_string(self); })
      .def("__repr__", [](const StepExplanation& self) { return to_string(self); });
}

}  // namespace sherd::python
