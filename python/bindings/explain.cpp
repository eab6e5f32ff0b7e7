#include "sherd/explain.h"

#include "bindings.h"

namespace sherd::python {

void bind_explain(py::module_& module) {
  py::class_<Explanation>(module, "Explanation")
      .def_readonly("op", &Explanation::op)
      .def_readonly("rule", &Explanation::rule)
      .def_readonly("bytes", &Explanation::bytes)
      .def_readonly("least_bytes", &Explanation::least)
      .def_readonly("along", &Explanation::along)
      .def_property_readonly(
          "bytes_by_rule", [](const Explanation& self) { return self.along.empty() ? self.bytes : self.bytes_by_rule; })
      .def_property_readonly("exchanges",
                             [](const Explanation& self) {
                               std::vector<std::pair<std::string, int64_t>> exchanges;
                               for (const auto& made : self.exchanges) exchanges.emplace_back(made.text, made.bytes);
                               return exchanges;
                             })
      .def_property_readonly("has_rule",
                             [](const Explanation& self) { return self.source != Explanation::Source::none; })
      .def_property_readonly("placements",
                             [](const Explanation& self) {
                               std::vector<Placements> inputs;
                               for (const auto& operand : self.operands) inputs.push_back(operand.placements);
                               return inputs;
                             })
      .def_property_readonly("outputs",
                             [](const Explanation& self) {
                               std::vector<std::string> outputs;
                               for (const auto& output : self.outputs) outputs.push_back(to_string(output, self.mesh));
                               return outputs;
                             })
      .def("__str__", [](const Explanation& self) { return to_string(self); })
      .def("__repr__", [](const Explanation& self) { return to_string(self); });
  module.def("rules_of", &rules_of, py::arg("op"));
  module.def("explain", [](const std::string& op, const std::vector<std::optional<std::string>>& operands,
                           const Mesh& mesh, const std::vector<std::pair<std::string, ArgumentValue>>& arguments,
                           const std::string& rule, int outputs) {
    OperatorCall call{.op = op, .operands = {}, .arguments = arguments, .rule = rule, .outputs = outputs};
    for (const auto& operand : operands) {
      call.operands.push_back(operand ? std::optional(parse_tensor(*operand, mesh)) : std::nullopt);
    }
    return explain(call, mesh);
  });
}

}  // namespace sherd::python
