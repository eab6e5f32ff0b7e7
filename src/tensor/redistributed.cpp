#include "tensor/redistributed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <unordered_map>

#include "plan/relabel.h"
#include "tensor/costs.h"
#include "tensor/held_boxes.h"
#include "tensor/joint_mesh.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/swap_parts.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Prefer = RedistributeOptions::Prefer;

plan::Prefer preference(Prefer prefer) {
  switch (prefer) {
    case Prefer::automatic:
      return plan::Prefer::automatic;
    case Prefer::bytes:
      return plan::Prefer::bytes;
    case Prefer::latency:
      return plan::Prefer::latency;
  }
  return plan::Prefer::automatic;
}

struct PlanKey {
  SpecPtr from;
  SpecPtr to;
  int64_t element_size;
  Prefer prefer;
  bool operator==(const PlanKey&) const = default;
};
struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const {
    size_t hash = reinterpret_cast<size_t>(key.from.get()) * 0x9E3779B97F4A7C15ULL;
    hash ^= reinterpret_cast<size_t>(key.to.get()) + (hash >> 17);
    return hash * 31 + static_cast<size_t>(key.element_size) * 4 + static_cast<size_t>(key.prefer);
  }
};
constexpr size_t kPlansKept = 1024;

MoveOptions move_options(const RedistributeOptions& options, bool background = false) {
  return {options.staging_bytes, options.reduce_dtype, options.move_dtype, background};
}

// A result never shares memory with its source, as in every other operator that is not a view.
Tensor of_its_own(const Tensor& local, const Tensor& source) {
  return local.numel() > 0 && local.is_alias_of(source) ? local.clone() : local;
}

// The placements with the Partials reduced, each rank having a share of the sum where that can be: along the longest
// dim whose cuts are not a user's, which depend on the other axes.
Placements shared_out(const Spec& spec) {
  Placements placements = spec.placements;
  Dims sizes = spec.sizes;
  for (const Placement& p : placements) {
    if (const auto* ragged = std::get_if<Ragged>(&p)) sizes[static_cast<size_t>(ragged->dim)] = 0;
  }
  const auto longest = std::max_element(sizes.begin(), sizes.end());
  const bool shares = longest != sizes.end() && *longest > 1;
  for (Placement& p : placements) {
    if (is_partial(p)) p = shares ? Placement(Shard(longest - sizes.begin())) : Placement(Replicate());
  }
  return placements;
}

}  // namespace

const plan::Redistribution& plan_between(const SpecPtr& from, const SpecPtr& to, int64_t element_size,
                                         const RedistributeOptions& options) {
  thread_local std::unordered_map<PlanKey, plan::Redistribution, PlanKeyHash> plans;
  PlanKey key{from, to, element_size, options.prefer};
  if (const auto found = plans.find(key); found != plans.end()) return found->second;
  if (plans.size() >= kPlansKept) plans.clear();
  plan::Redistribution plan =
      plan::plan_redistribution(from->mesh.mesh(), from->sizes, element_size, from->placements, to->placements,
                                {.prefer = preference(options.prefer), .costs = current_costs()});
  return plans.emplace(std::move(key), std::move(plan)).first->second;
}

std::vector<Tensor> redistributed(const std::vector<Tensor>& tensors, const std::vector<Placements>& to,
                                  const RedistributeOptions& options, bool background) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<Tensor> results(tensors.size());
  std::vector<SpecPtr> specs(tensors.size());
  std::vector<plan::Redistribution> plans;  // copies: those in the cache may be dropped while others are made
  plans.reserve(tensors.size());
  std::vector<Move> moves;
  std::vector<size_t> moved;
  for (size_t i = 0; i < tensors.size(); ++i) {
    DTensorMeta* meta = meta_of(tensors[i]);
    const SpecPtr& from = meta->spec;
    if (from->boxes) {
      results[i] = redistributed(tensors[i], to[i], options, background);
      continue;
    }
    if (from->placements == to[i]) {
      results[i] = tensors[i];
      continue;
    }
    specs[i] = intern_spec(from->mesh, to[i], from->sizes, from->strides);
    plans.push_back(plan_between(from, specs[i], static_cast<int64_t>(tensors[i].element_size()), options));
    moves.push_back({plans.back(), current_local(*meta), from->sizes, from->placements});
    moved.push_back(i);
  }
  if (moves.empty()) return results;
  const std::vector<Tensor> locals =
      move_together(meta_of(tensors[moved[0]])->spec->mesh, moves, move_options(options, background));
  for (size_t k = 0; k < moved.size(); ++k) {
    results[moved[k]] = wrap(specs[moved[k]], of_its_own(locals[k], moves[k].local));
  }
  return results;
}

Tensor redistributed(const Tensor& tensor, const Placements& to, const RedistributeOptions& options, bool background) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  DTensorMeta* meta = meta_of(tensor);
  const SpecPtr from = meta->spec;
  if (from->boxes) {
    return ordinary(
        tensor, to,
        {.staging_bytes = options.staging_bytes, .move_dtype = options.move_dtype, .background = background});
  }
  const Tensor local = current_local(*meta);
  const SpecPtr spec = intern_spec(from->mesh, to, from->sizes, from->strides);
  if (from->placements == to) return wrap(spec, of_its_own(local, local));
  const auto& plan = plan_between(from, spec, static_cast<int64_t>(tensor.element_size()), options);
  const Tensor moved =
      move_together(from->mesh, {{plan, local, from->sizes, from->placements}}, move_options(options, background))[0];
  return wrap(spec, of_its_own(moved, local));
}

Tensor redistributed(const Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                     const RedistributeOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Spec& given = *meta_of(tensor)->spec;
  if (!given.boxes && !options.relabel && is_slice(mesh, given.mesh)) {
    return lowered(redistributed(tensor, lifted_placements(to, mesh, given.mesh), options), mesh);
  }
  if (!given.boxes && !options.relabel && is_slice(given.mesh, mesh)) {
    return redistributed(lifted(tensor, mesh), to, options);
  }
  const Tensor settled = given.has_partial ? redistributed(tensor, shared_out(given), options)
                         : given.boxes     ? redistributed(tensor, given.placements, options)
                                           : tensor;
  DTensorMeta* meta = meta_of(settled);
  const Spec& from = *meta->spec;
  const Layout before = from.layout();
  Layout after{mesh.mesh(), from.sizes, to};
  if (options.relabel) after.mesh = plan::relabel(before, after);
  const DeviceMesh target =
      options.relabel ? DeviceMesh(c10::DeviceTypeName(mesh.device_type(), true), after.mesh) : mesh;
  const Tensor held = current_local(*meta);
  const c10::ScalarType dtype = held.scalar_type();
  const Tensor local = swap_layouts(from.mesh.world(), before, after, held.to(options.move_dtype.value_or(dtype)),
                                    options.staging_bytes);
  return wrap(intern_spec(target, to, from.sizes, from.strides), local.to(dtype));
}

}  // namespace sherd::detail
