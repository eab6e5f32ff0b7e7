// Tensors drawn, and pages about a run.

#include "bindings.h"
#include "sherd/report.h"
#include "sherd/visualize.h"

namespace sherd::python {

void bind_pictures(py::module_& module) {
  module.def("visualize_sharding", [](const at::Tensor& tensor, std::optional<bool> color, int64_t max_width,
                                      int64_t max_rows, bool legend) {
    return visualize_sharding(tensor, {.color = color, .max_width = max_width, .max_rows = max_rows, .legend = legend});
  });
  module.def("visualize_sharding_svg", [](const at::Tensor& tensor, int64_t width, bool legend) {
    return visualize_sharding_svg(tensor, {.width = width, .legend = legend});
  });
  module.def("visualize_sharding_html", [](const at::Tensor& tensor, int64_t width, bool legend) {
    return visualize_sharding_html(tensor, {.width = width, .legend = legend});
  });
  module.def("bytes_here", [](const std::vector<at::Tensor>& tensors) { return bytes_here(tensors); });

  py::class_<Report>(module, "Report")
      .def(py::init<std::string>())
      .def("section", [](Report& self, const std::string& title) { self.section(title); })
      .def("text", [](Report& self, const std::string& paragraph) { self.text(paragraph); })
      .def("note", [](Report& self, const std::string& paragraph) { self.note(paragraph); })
      .def("chart",
           [](Report& self, std::string title,
              const std::vector<std::tuple<std::string, std::vector<double>, bool>>& series,
              const std::vector<std::pair<int64_t, std::string>>& marks, bool logarithmic) {
             LineChart chart{.title = std::move(title), .series = {}, .marks = {}, .logarithmic = logarithmic};
             for (const auto& [label, values, is_limit] : series) chart.series.push_back({label, values, is_limit});
             for (const auto& [after_step, label] : marks) chart.marks.push_back({after_step, label});
             self.chart(chart);
           })
      .def("bars",
           [](Report& self, std::string title, std::vector<std::string> parts,
              const std::vector<std::pair<std::string, std::vector<double>>>& bars, bool are_bytes) {
             BarChart chart{.title = std::move(title), .parts = std::move(parts), .bars = {}};
             chart.unit = are_bytes ? BarChart::Unit::bytes : BarChart::Unit::number;
             for (const auto& [label, values] : bars) chart.bars.push_back({label, values});
             self.chart(chart);
           })
      .def(
          "memory",
          [](Report& self, std::string title, const std::vector<std::pair<std::string, std::vector<at::Tensor>>>& parts,
             const Group& group) {
            std::vector<MemoryPart> named;
            for (const auto& [name, tensors] : parts) named.push_back({name, tensors});
            self.chart(memory_chart(group, std::move(title), named));
          },
          ReleaseGil())
      .def("table",
           [](Report& self, std::vector<std::string> columns, std::vector<std::vector<std::string>> rows) {
             self.table({std::move(columns), std::move(rows)});
           })
      .def("picture", [](Report& self, const std::string& title, const Layout& layout) { self.picture(title, layout); })
      .def("picture",
           [](Report& self, const std::string& title, const at::Tensor& tensor) { self.picture(title, tensor); })
      .def("communication", [](Report& self, const std::vector<CollectiveCall>& calls) { self.communication(calls); })
      .def("communication", [](Report& self, const std::vector<CommRecord>& records) { self.communication(records); })
      .def("html", &Report::html)
      .def("write", [](const Report& self, const std::string& path) { self.write(path); })
      .def(
          "write", [](const Report& self, const std::string& path, const Group& group) { self.write(path, group); },
          ReleaseGil());
}

}  // namespace sherd::python
