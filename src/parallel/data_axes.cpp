#include "parallel/data_axes.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "comm/errors.h"
#include "parallel/place.h"
#include "sherd/dtensor.h"
#include "tensor/joint_mesh.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"
#include "tensor/take_values.h"
#include "tensor/wishes.h"

namespace sherd::detail {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const char* operation, const std::string& name, const Tensor& tensor, const DeviceMesh& data,
                         const std::string& what, const std::string& help) {
  throw_value_error(ErrorText(operation, what)
                        .fact("parameter", name)
                        .fact("it is", to_string(tensor))
                        .fact("data axes", to_string(data))
                        .help(help));
}

// How the data axis `axis` cuts a tensor that the other axes cut as `others` says. Where another axis cuts rows, the
// data axis cuts within its parts, so that they are gathered without the other ranks; where that does not come out
// even, it cuts another dim.
Placement data_cut(const Mesh& mesh, const Dims& sizes, const Placements& others, int64_t axis) {
  const auto ndim = static_cast<int64_t>(sizes.size());
  if (ndim == 0) return Replicate();
  const auto cut_by_others = [&](int64_t dim) {
    int64_t parts = 1;
    for (size_t a = 0; a < others.size(); ++a) {
      if (is_shard(others[a]) && sharded_dim(others[a]) == dim) parts *= mesh.size(static_cast<int64_t>(a));
    }
    return parts;
  };
  if (cut_by_others(0) == 1) return Shard(0);
  const int64_t parts = cut_by_others(0);
  const bool plain = std::all_of(others.begin(), others.end(),
                                 [](const Placement& p) { return !is_shard(p) || std::holds_alternative<Shard>(p); });
  bool all_right = true;  // axes further right are cut first by a strided shard
  for (size_t a = 0; a < others.size(); ++a) {
    if (is_shard(others[a]) && sharded_dim(others[a]) == 0) all_right &= static_cast<int64_t>(a) > axis;
  }
  const bool even = sizes[0] % (parts * mesh.size(axis)) == 0;
  if (plain && all_right && even) return StridedShard(0, parts);
  if (plain && !all_right && even) return Shard(0);
  for (int64_t dim = 1; dim < ndim; ++dim) {
    if (cut_by_others(dim) == 1) return Shard(dim);
  }
  return Shard(0);
}

// What the place `source` along some axes has, everywhere.
void agree(const Tensor& local, const DeviceMesh& mesh, uint64_t axes, int source) {
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if ((axes >> axis & 1) != 0) take_values_of(source, local, mesh, axis);
  }
}

}  // namespace

std::vector<DataAxisPlan> plan_data_axes(const char* operation, const std::vector<NamedTensor>& parameters,
                                         const DeviceMesh& data, bool shards) {
  std::vector<DataAxisPlan> plans;
  for (const auto& [name, tensor] : parameters) {
    const DTensorMeta* meta = is_born_on(tensor, data) ? nullptr : meta_of(tensor);
    DataAxisPlan plan{name, tensor, data, {}, 0};
    if (meta != nullptr) {
      const auto& axes = meta->spec->mesh.mesh().axes();
      for (const MeshAxis& axis : data.mesh().axes()) {
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
        refuse(operation, name, tensor, data, "a parameter is on this axis already",
               std::string(operation) + " once for each module, with an axis of its own");
      }
      const auto joint = joint_mesh(meta->spec->mesh, data);
      if (!joint || meta->spec->boxes || meta->spec->has_partial) {
        refuse(operation, name, tensor, data, "the parameter's mesh and the data axes are not of one mesh",
               "auto mesh = sherd::init_device_mesh(\"cpu\", {2, 2}, {\"dp\", \"tp\"}); use mesh[\"tp\"] and "
               "mesh[\"dp\"]");
      }
      plan.mesh = *joint;
    }
    plan.placements = meta != nullptr ? lifted_placements(meta->spec->placements, meta->spec->mesh, plan.mesh)
                                      : Placements(static_cast<size_t>(data.ndim()), Replicate());
    for (int64_t axis = 0; axis < data.ndim(); ++axis) {
      const MeshAxis& wanted = data.mesh().axes()[static_cast<size_t>(axis)];
      const auto& axes = plan.mesh.mesh().axes();
      const auto at = meta == nullptr ? axis : std::find(axes.begin(), axes.end(), wanted) - axes.begin();
      plan.data_axes |= uint64_t{1} << at;
      if (shards && axis == data.ndim() - 1) {
        plan.placements[static_cast<size_t>(at)] =
            data_cut(plan.mesh.mesh(), tensor.sizes().vec(), plan.placements, at);
      }
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

void put_on_data_axes(const std::vector<DataAxisPlan>& plans, const std::optional<int>& source) {
  for (const DataAxisPlan& plan : plans) {
    Tensor tensor = plan.tensor;
    if (!is_dtensor(tensor)) {
      distribute_parameter_(tensor, plan.mesh, plan.placements, {.source = source});
      continue;
    }
    if (is_born_on(tensor, plan.mesh)) {
      place(tensor, plan.mesh, plan.placements);
      continue;
    }
    const WishesPtr wishes = wishes_of(tensor);
    const bool requires_grad = tensor.requires_grad();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    DTensorMeta* meta = meta_of(tensor);
    if (source) agree(meta->local, plan.mesh, plan.data_axes, *source);
    const Tensor there = lifted(tensor, plan.mesh);
    const Tensor placed =
        meta_of(there)->spec->placements == plan.placements ? there : redistributed(there, plan.placements);
    tensor.set_data(placed);
    tensor.set_requires_grad(requires_grad);
    if (wishes) set_wishes(tensor, wishes);
  }
}

void replicate_buffers(const std::vector<NamedTensor>& buffers, const DeviceMesh& data,
                       const std::optional<int>& source) {
  for (const NamedTensor& item : buffers) {
    Tensor buffer = item.tensor;
    const Placements whole(static_cast<size_t>(data.ndim()), Replicate());
    if (!is_dtensor(buffer)) {
      distribute_parameter_(buffer, data, whole, {.source = source});
    } else if (is_born_on(buffer, data)) {
      place(buffer, data, whole);
    } else if (source) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      agree(meta_of(buffer)->local, data, ~uint64_t{0}, *source);
    }
  }
}

}  // namespace sherd::detail
