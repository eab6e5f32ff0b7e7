#include "tensor/joint_mesh.h"

#include <algorithm>

#include "comm/errors.h"
#include "tensor/edges.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

bool has_axis(const DeviceMesh& mesh, const MeshAxis& axis) {
  const auto& axes = mesh.mesh().axes();
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Every axis is one of the root's.
bool cut_from_root(const DeviceMesh& mesh, const DeviceMesh& root) {
  const auto& axes = mesh.mesh().axes();
  int64_t next = 0;  // in the root's order: a dim that several axes cut is cut in the order of the mesh
  for (const MeshAxis& axis : axes) {
    const auto at = root.mesh().has_names() ? root.mesh().find_axis(axis.name) : std::nullopt;
    if (!at || *at < next || root.mesh().size(*at) != axis.size) return false;
    next = *at + 1;
  }
  return true;
}

template <class Do>
void each_tensor(const OpInfo& info, const Stack& stack, const Do& act) {
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - info.arguments.size() + i];
    if (value.isTensor()) {
      act(value.toTensor(), info.arguments[i]);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) act(element.toTensor(), info.arguments[i]);
      }
    }
  }
}

}  // namespace

bool is_slice(const DeviceMesh& part, const DeviceMesh& whole) {
  if (part == whole) return true;
  return part.same_root(whole) && part.ndim() < whole.ndim() && cut_from_root(whole, whole.root()) &&
         cut_from_root(part, whole);
}

std::optional<DeviceMesh> joint_mesh(const DeviceMesh& a, const DeviceMesh& b) {
  if (a == b) return a;
  const DeviceMesh root = a.root();
  if (!a.same_root(b) || !root.coordinate() || !cut_from_root(a, root) || !cut_from_root(b, root)) return std::nullopt;
  std::vector<std::string> names;
  for (const MeshAxis& axis : root.mesh().axes()) {
    if (has_axis(a, axis) || has_axis(b, axis)) names.push_back(axis.name);
  }
  return root[names];
}

Placements lifted_placements(const Placements& placements, const DeviceMesh& part, const DeviceMesh& whole) {
  if (part == whole) return placements;  // whose axes may have no names to be told apart by
  Placements result;
  for (const MeshAxis& axis : whole.mesh().axes()) {
    const auto& axes = part.mesh().axes();
    const auto at = std::find(axes.begin(), axes.end(), axis);
    result.push_back(at == axes.end() ? Placement(Replicate()) : placements[static_cast<size_t>(at - axes.begin())]);
  }
  return result;
}

Tensor lifted(const Tensor& tensor, const DeviceMesh& whole) {
  DTensorMeta* meta = meta_of(tensor);
  const Spec& from = *meta->spec;
  if (from.mesh == whole) return tensor;
  uint64_t gathers = 0;
  for (int64_t axis = 0; axis < whole.ndim(); ++axis) {
    const auto& axes = from.mesh.mesh().axes();
    const auto at = std::find(axes.begin(), axes.end(), whole.mesh().axes()[static_cast<size_t>(axis)]);
    if (at != axes.end() && (from.gathers >> (at - axes.begin()) & 1) != 0) gathers |= uint64_t{1} << axis;
  }
  const Placements placements = lifted_placements(from.placements, from.mesh, whole);
  Tensor result =
      wrap(intern_spec(whole, placements, from.sizes, from.strides, nullptr, gathers), current_local(*meta));
  meta_of(result)->is_cut = meta->is_cut;
  meta_of(result)->gathered = meta->gathered;
  return result;
}

Tensor lowered(const Tensor& tensor, const DeviceMesh& part) {
  DTensorMeta* meta = meta_of(tensor);
  const Spec& from = *meta->spec;
  if (from.mesh == part) return tensor;
  Placements placements;
  for (const MeshAxis& axis : part.mesh().axes()) {
    placements.push_back(from.placements[static_cast<size_t>(from.mesh.mesh().axis(axis.name))]);
  }
  return wrap(intern_spec(part, placements, from.sizes, from.strides), current_local(*meta));
}

Tensor brought_to_mesh(const char* operation, const Tensor& tensor, const DeviceMesh& mesh) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr || meta->spec->mesh == mesh) return tensor;
  const auto joint = joint_mesh(meta->spec->mesh, mesh);
  if (!joint || meta->spec->boxes) {
    throw_value_error(ErrorText(operation, "operands live on different meshes")
                          .fact("one", describe(*meta->spec, tensor.scalar_type()))
                          .fact("other", "on " + to_string(mesh))
                          .help("sherd::redistribute(tensor, mesh, placements)"));
  }
  const Tensor there = lifted(tensor, *joint);
  const Placements& now = meta_of(there)->spec->placements;
  Placements to = now;
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (!has_axis(mesh, joint->mesh().axes()[axis])) to[axis] = Replicate();
  }
  if (to == now) return lowered(there, mesh);
  check_explicit([&] {
    return would_move(operation,
                      {{"operand", describe(*meta->spec, tensor.scalar_type())}, {"needed on", to_string(mesh)}},
                      "sherd::redistribute(operand, mesh, placements) first");
  });
  return lowered(redistributed(there, to, {}), mesh);
}

std::optional<DeviceMesh> meeting_mesh(const OpInfo& info, const Stack& stack) {
  std::optional<DeviceMesh> target;
  bool differ = false;
  bool fixed = false;  // by what is written
  bool strangers = false;
  each_tensor(info, stack, [&](const Tensor& tensor, const ArgumentInfo& argument) {
    const DTensorMeta* meta = meta_of(tensor);
    if (meta == nullptr) return;
    const DeviceMesh& mesh = meta->spec->mesh;
    if (!target) {
      target = mesh;
      fixed = argument.written;
      return;
    }
    if (mesh == *target) {
      fixed |= argument.written;
      return;
    }
    differ = true;
    const auto joint = joint_mesh(*target, mesh);
    if (!joint || meta->spec->boxes || (fixed && argument.written)) {
      strangers = true;
    } else if (argument.written) {
      target = mesh;
      fixed = true;
    } else if (!fixed) {
      target = *joint;
    }
  });
  return differ && !strangers ? target : std::nullopt;
}

void bring_to_mesh(const OpInfo& info, Stack& stack, const DeviceMesh& mesh) {
  const std::string operation = info.short_name();
  const auto brought = [&](const Tensor& tensor) { return brought_to_mesh(operation.c_str(), tensor, mesh); };
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    c10::IValue& value = stack[stack.size() - info.arguments.size() + i];
    if (info.arguments[i].written) continue;
    if (value.isTensor()) {
      value = brought(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(brought(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isTensor() ? std::optional(brought(element.toTensor())) : std::nullopt);
      }
      value = std::move(list);
    }
  }
}

}  // namespace sherd::detail
