#include "training/gradients.h"

#include <algorithm>

#include "comm/mesh_group.h"
#include "tensor/edges.h"
#include "tensor/held_boxes.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"

namespace sherd::detail {
namespace {

using at::Tensor;

// A tensor whose parts can be added up as they are.
Tensor settled(const Tensor& gradient) {
  const SpecPtr& spec = meta_of(gradient)->spec;
  if (spec->boxes) return ordinary(gradient, spec->placements, {.operation = "gradients"});
  if (spec->has_partial) return redistributed(gradient, grad_placements_for(spec->placements));
  return gradient;
}

bool is_copy_here(const Spec& spec) {
  if (!spec.mesh.coordinate()) return true;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    if (is_replicate(spec.placements[axis]) && (*spec.mesh.coordinate())[axis] != 0) return true;
  }
  return false;
}

}  // namespace

std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    if (parameter.defined() && parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

std::vector<HeldGradients> by_mesh(const std::vector<Tensor>& gradients) {
  std::vector<HeldGradients> held;
  const auto of = [&](const std::optional<DeviceMesh>& mesh) -> HeldGradients& {
    const auto known = std::find_if(held.begin(), held.end(), [&](const HeldGradients& h) { return h.mesh == mesh; });
    return known != held.end() ? *known : held.emplace_back(HeldGradients{mesh, {}, {}, {}, {}});
  };
  for (const Tensor& gradient : gradients) {
    if (meta_of(gradient) == nullptr) {
      HeldGradients& plain = of(std::nullopt);
      plain.gradients.push_back(gradient);
      plain.locals.push_back(gradient);
      plain.is_copy.push_back(false);
      plain.is_own.push_back(true);
      continue;
    }
    const Tensor tensor = settled(gradient);
    DTensorMeta& meta = *meta_of(tensor);
    HeldGradients& mine = of(meta.spec->mesh);
    mine.gradients.push_back(gradient);
    mine.locals.push_back(current_local(meta));
    mine.is_own.push_back(tensor.is_same(gradient));
    mine.is_copy.push_back(is_copy_here(*meta.spec));
  }
  return held;
}

Group group_of_all(const DeviceMesh& mesh) { return mesh.ndim() == 1 ? mesh.group(0) : group_of(mesh); }

void note_written(const Tensor& gradient) {
  gradient.unsafeGetTensorImpl()->bump_version();
  if (DTensorMeta* meta = meta_of(gradient)) wrote_local(*meta);
}

}  // namespace sherd::detail
