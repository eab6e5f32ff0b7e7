#include "parallel/activation.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "comm/call.h"
#include "comm/errors.h"
#include "parallel/axis_of.h"
#include "sherd/box.h"
#include "sherd/dtensor.h"

namespace sherd::detail {
namespace {

using at::Tensor;

std::vector<std::string> fields_of(const std::string& text, char separator) {
  std::vector<std::string> fields;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != separator) continue;
    fields.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return fields;
}

int64_t number(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

DeviceMesh mesh_here(const ActivationForm& form, const DeviceMesh& pipeline) { return pipeline.root()[form.axes]; }

}  // namespace

ActivationForm form_of(const Tensor& tensor, const DeviceMesh& pipeline) {
  ActivationForm form{tensor.scalar_type(), tensor.sizes().vec(), {}, {}, tensor.requires_grad()};
  if (!is_dtensor(tensor)) return form;
  const DeviceMesh mesh = mesh_of(tensor);
  const auto& axes = mesh.mesh().axes();
  const bool found = mesh.mesh().has_names() && pipeline.root().mesh().has_names() &&
                     std::all_of(axes.begin(), axes.end(), [&](const MeshAxis& axis) {
                       const auto in_root = pipeline.root().mesh().find_axis(axis.name);
                       return in_root && pipeline.root().mesh().size(*in_root) == axis.size;
                     });
  if (!found || axis_of(mesh, pipeline)) {
    throw_value_error(ErrorText("Pipeline", "what leaves a stage must lie on the stage's own ranks")
                          .fact("output", to_string(tensor))
                          .fact("pipeline", to_string(pipeline) + " of " + to_string(pipeline.root()))
                          .help("put the stage on the other axes of one mesh with names: mesh[{\"dp\", \"tp\"}]"));
  }
  for (const MeshAxis& axis : axes) form.axes.push_back(axis.name);
  form.placements = placements_of(tensor);
  return form;
}

std::string describe(const ActivationForm& form) {
  std::string text = dtype_name(form.dtype) + to_string(form.shape);
  if (!form.axes.empty()) text += " " + to_string(form.placements);
  return text + (form.needs_grad ? ", with gradient" : "");
}

std::string to_text(const ActivationForm& form) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", static_cast<int>(form.dtype), fmt::join(form.shape, " "),
                     fmt::join(form.axes, "\t"), to_string(form.placements), form.needs_grad ? 1 : 0);
}

ActivationForm parse_form(const std::string& text) {
  const std::vector<std::string> fields = fields_of(text, '\n');
  ActivationForm form;
  form.dtype = static_cast<c10::ScalarType>(number(fields.at(0)));
  if (!fields.at(1).empty()) {
    for (const std::string& size : fields_of(fields[1], ' ')) form.shape.push_back(number(size));
  }
  if (!fields.at(2).empty()) {
    form.axes = fields_of(fields[2], '\t');
    form.placements = parse_placements(fields.at(3));
  }
  form.needs_grad = fields.at(4) == "1";
  return form;
}

Tensor sendable(const Tensor& tensor) {
  if (!is_dtensor(tensor)) return tensor;
  Placements placements = placements_of(tensor);
  for (Placement& p : placements) {
    if (is_partial(p)) p = Replicate();
  }
  return redistribute(tensor, placements);
}

Tensor part_to_send(const Tensor& tensor) {
  return (is_dtensor(tensor) ? to_local(tensor.detach()) : tensor.detach()).contiguous();
}

Tensor place_for(const ActivationForm& form, const DeviceMesh& pipeline) {
  const auto options = at::TensorOptions(form.dtype).device(pipeline.device());
  if (form.axes.empty()) return at::empty(form.shape, options);
  const DeviceMesh mesh = mesh_here(form, pipeline);
  return at::empty(local_shape({mesh.mesh(), form.shape, form.placements}, *mesh.coordinate()), options);
}

Tensor activation_of(const Tensor& part, const ActivationForm& form, const DeviceMesh& pipeline) {
  if (form.axes.empty()) return part;
  return from_local(part, mesh_here(form, pipeline), form.placements, {.shape = form.shape});
}

}  // namespace sherd::detail
