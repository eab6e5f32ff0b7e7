// Operators on lists of tensors: what they do to the i-th tensors of their lists, they do to each i alone.

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "comm/errors.h"
#include "tensor/dispatch.h"
#include "tensor/joint_mesh.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Where the i-th tensors of all lists are brought: the first list's placements, with Partials reduced.
struct Target {
  SpecPtr spec;  // null where the i-th tensor of the first list is not distributed
  Placements placements;
};

Target target_of(const Tensor& tensor) {
  Target target;
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr) return target;
  target.placements = meta->spec->placements;
  for (Placement& p : target.placements) {
    if (is_partial(p)) p = Replicate();
  }
  target.spec = intern_spec(meta->spec->mesh, target.placements, meta->spec->sizes, meta->spec->strides);
  return target;
}

// This rank's part of a DTensor where it has these placements.
Tensor moved_to(const OpInfo& info, const Tensor& tensor, const Placements& to) {
  DTensorMeta* meta = meta_of(tensor);
  const Spec& spec = *meta->spec;
  if (spec.placements != to) {
    check_explicit([&] {
      return would_move(info.short_name(),
                        {{"operand", describe(spec, tensor.scalar_type())}, {"needed as", to_string(to)}},
                        "sherd::redistribute(operand, " + to_code(to) + ")");
    });
  }
  return move(current_local(*meta), spec.mesh, spec.sizes, spec.placements, to);
}

Tensor local_at(const OpInfo& info, const Tensor& tensor, const Target& target) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta != nullptr && !meta->leaf_is_settled && c10::GradMode::is_enabled()) hook_leaf(tensor);
  if (!target.spec) {
    return meta == nullptr ? tensor : moved_to(info, tensor, Placements(meta->spec->placements.size(), Replicate()));
  }
  const bool scalar = tensor.dim() == 0;
  const Placements whole(target.placements.size(), Replicate());
  const Placements& to = scalar ? whole : target.placements;
  if (meta == nullptr) {
    // A rank outside the mesh has a part of nothing.
    if (!target.spec->mesh.coordinate() && !scalar) return at::empty({0}, tensor.options());
    return move(tensor, target.spec->mesh, tensor.sizes().vec(), whole, to);
  }
  if (!(meta->spec->mesh == target.spec->mesh)) {
    return local_at(info, brought_to_mesh(info.short_name().c_str(), tensor, target.spec->mesh), target);
  }
  return moved_to(info, tensor, to);
}

}  // namespace

void execute_foreach(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  std::vector<Target> targets;
  std::vector<std::vector<Tensor>> originals(info.arguments.size());
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    c10::IValue& value = stack[base + i];
    if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isTensorList()) {
      originals[i] = value.toTensorVector();
      if (targets.empty()) {
        for (const Tensor& tensor : originals[i]) targets.push_back(target_of(tensor));
      }
      c10::List<Tensor> locals;
      for (size_t k = 0; k < originals[i].size(); ++k) {
        locals.push_back(local_at(info, originals[i][k], k < targets.size() ? targets[k] : Target()));
      }
      value = std::move(locals);
    } else if (value.isTensor() && value.toTensor().defined()) {
      value = local_at(info, value.toTensor(), Target());
    }
  }
  std::vector<std::vector<Tensor>> moved(info.arguments.size());
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].written && stack[base + i].isTensorList()) moved[i] = stack[base + i].toTensorVector();
  }
  op.callBoxed(stack);
  std::vector<DTensorMeta*> written;
  for (size_t i = 0; i < moved.size(); ++i) {
    for (size_t k = 0; k < moved[i].size(); ++k) {
      DTensorMeta* meta = meta_of(originals[i][k]);
      if (meta == nullptr) continue;
      if (!moved[i][k].is_same(meta->local)) {
        meta->local.copy_(
            move(moved[i][k], meta->spec->mesh, meta->spec->sizes, targets[k].placements, meta->spec->placements));
      }
      written.push_back(meta);
    }
  }
  wrote_locals(written);
  const size_t count = info.return_of.size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = stack[stack.size() - count + i];
    if (!value.isTensorList()) continue;
    c10::List<Tensor> list;
    const std::vector<Tensor> locals = value.toTensorVector();
    for (size_t k = 0; k < locals.size(); ++k) {
      const bool wraps = k < targets.size() && targets[k].spec;
      list.push_back(wraps ? wrap(targets[k].spec, locals[k]) : locals[k]);
    }
    value = std::move(list);
  }
}

}  // namespace sherd::detail
