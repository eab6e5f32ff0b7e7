#include "tensor/redistributed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <unordered_map>

#include "comm/call.h"
#include "plan/held.h"
#include "tensor/costs.h"
#include "tensor/crossing.h"
#include "tensor/held_boxes.h"
#include "tensor/joint_mesh.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/travel_types.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Prefer = RedistributeOptions::Prefer;

struct PlanKey {
  SpecPtr from;
  SpecPtr to;
  c10::ScalarType dtype;
  c10::ScalarType moved;    // the type that values travel in
  c10::ScalarType reduced;  // and that Partials are reduced in
  Prefer prefer;
  int64_t staging_bytes;
  uint64_t costs;  // by their version
  bool operator==(const PlanKey&) const = default;
};
struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const {
    size_t hash = reinterpret_cast<size_t>(key.from.get()) * 0x9E3779B97F4A7C15ULL;
    hash ^= reinterpret_cast<size_t>(key.to.get()) + (hash >> 17);
    const size_t types = (static_cast<size_t>(key.dtype) * 64 + static_cast<size_t>(key.moved)) * 64;
    return hash * 31 + (types + static_cast<size_t>(key.reduced)) * 4 + static_cast<size_t>(key.prefer);
  }
};
constexpr size_t kPlansKept = 1024;

MoveOptions move_options(const RedistributeOptions& options, bool background = false) {
  return {options.staging_bytes, options.reduce_dtype, options.move_dtype, background};
}

// "f32[4@0, 6] on [2] -> (S(1)) on [2]". The ranks of a large mesh would be most of it.
std::string text_of_move(const Spec& from, c10::ScalarType dtype, const Placements& to) {
  constexpr int64_t kFew = 64;
  const Mesh& mesh = from.mesh.mesh();
  const bool all = mesh.has_default_ranks() || mesh.size() <= kFew;
  const std::string on = all ? to_string(mesh) : to_string(plan::without_ranks(mesh)) + "{...}";
  const TensorText tensor{dtype_name(dtype), from.sizes, from.placements};
  return fmt::format("{} on {} -> {} on {}", to_string(tensor, mesh), on, to_string(to), on);
}

// What a tensor in boxes is brought to before it goes to another mesh.
SpecPtr without_boxes(const SpecPtr& spec) {
  return spec->boxes ? intern_spec(spec->mesh, spec->placements, spec->sizes, contiguous_strides(spec->sizes)) : spec;
}

// A result never shares memory with its source, as in every other operator that is not a view: not where it has no
// elements either, for writes are counted by memory, and every rank must come to the same count.
Tensor of_its_own(const Tensor& local, const Tensor& source) {
  return local.is_alias_of(source) ? local.clone() : local;
}

}  // namespace

plan::Prefer plan_preference(Prefer prefer) {
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

PlannedPtr plan_between(const SpecPtr& from, const SpecPtr& to, c10::ScalarType dtype,
                        const RedistributeOptions& options) {
  thread_local std::unordered_map<PlanKey, PlannedPtr, PlanKeyHash> plans;
  const c10::ScalarType moved = travels_in(dtype, options.move_dtype);
  const c10::ScalarType reduced = reduces_in(dtype, options.reduce_dtype);
  PlanKey key{from, to, dtype, moved, reduced, options.prefer, options.staging_bytes, costs_version()};
  if (const auto found = plans.find(key); found != plans.end()) return found->second;
  if (plans.size() >= kPlansKept) plans.clear();
  auto plan = plan::plan_redistribution(from->mesh.mesh(), from->sizes, static_cast<int64_t>(c10::elementSize(moved)),
                                        from->placements, to->placements,
                                        {.prefer = plan_preference(options.prefer),
                                         .costs = current_costs(),
                                         .reduced_size = static_cast<int64_t>(c10::elementSize(reduced)),
                                         .staging_bytes = options.staging_bytes});
  std::string text = text_of_move(*from, dtype, to->placements) + " by " + to_string(plan, from->mesh.mesh());
  auto purpose = std::make_shared<Purpose>("redistribute " + text);
  auto planned = std::make_shared<const Planned>(std::move(plan), std::move(text), std::move(purpose));
  plans.emplace(std::move(key), planned);
  return planned;
}

std::vector<Tensor> redistributed(const std::vector<Tensor>& tensors, const std::vector<Placements>& to,
                                  const RedistributeOptions& options, bool background) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<Tensor> results(tensors.size());
  std::vector<SpecPtr> specs(tensors.size());
  std::vector<PlannedPtr> plans;
  plans.reserve(tensors.size());
  std::vector<PurposePtr> purposes;
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
    plans.push_back(plan_between(from, specs[i], tensors[i].scalar_type(), options));
    purposes.push_back(plans.back()->purpose);
    moves.push_back({plans.back()->plan, current_local(*meta), from->sizes, from->placements});
    moved.push_back(i);
  }
  if (moves.empty()) return results;
  const PurposeScope purpose(common_purpose(purposes));
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
  const PlannedPtr planned = plan_between(from, spec, tensor.scalar_type(), options);
  const PurposeScope purpose(planned->purpose);
  const Tensor moved = move_together(from->mesh, {{planned->plan, local, from->sizes, from->placements}},
                                     move_options(options, background))[0];
  return wrap(spec, of_its_own(moved, local));
}

namespace {

// By a plan on the larger of two meshes, of which the other is a slice.
std::vector<Tensor> moved_on_one_mesh(const std::vector<Tensor>& tensors, const DeviceMesh& mesh,
                                      const std::vector<Placements>& to, const RedistributeOptions& options,
                                      bool background) {
  const DeviceMesh& given = meta_of(tensors.front())->spec->mesh;
  const bool rises = is_slice(given, mesh);
  std::vector<Tensor> there;
  std::vector<Placements> wanted;
  for (size_t i = 0; i < tensors.size(); ++i) {
    there.push_back(rises ? lifted(tensors[i], mesh) : tensors[i]);
    wanted.push_back(rises ? to[i] : lifted_placements(to[i], mesh, given));
  }
  std::vector<Tensor> moved = redistributed(there, wanted, options, background);
  for (size_t i = 0; i < moved.size(); ++i) {
    // What has not moved is a copy all the same.
    if (moved[i].is_same(there[i])) moved[i] = redistributed(there[i], wanted[i], options, background);
    if (!rises) moved[i] = lowered(moved[i], mesh);
  }
  return moved;
}

}  // namespace

std::vector<Tensor> redistributed(const std::vector<Tensor>& tensors, const DeviceMesh& mesh,
                                  const std::vector<Placements>& to, const RedistributeOptions& options,
                                  bool background) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (tensors.empty()) return {};
  std::vector<Tensor> settled;
  for (const Tensor& tensor : tensors) {
    const Spec& given = *meta_of(tensor)->spec;
    settled.push_back(given.boxes ? redistributed(tensor, given.placements, options, background) : tensor);
  }
  if (stays_on_one_mesh(*meta_of(settled.front())->spec, mesh, options)) {
    return moved_on_one_mesh(settled, mesh, to, options, background);
  }
  std::vector<CrossingPtr> ways;
  std::vector<Tensor> locals;
  for (size_t i = 0; i < settled.size(); ++i) {
    DTensorMeta* meta = meta_of(settled[i]);
    locals.push_back(current_local(*meta));
    const SpecPtr target = intern_spec(mesh, to[i], meta->spec->sizes, meta->spec->strides);
    ways.push_back(crossing_between(meta->spec, target, locals.back().scalar_type(), options));
  }
  return crossed(ways, locals, options, background);
}

SpecPtr spec_after(const Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                   const RedistributeOptions& options) {
  const SpecPtr from = without_boxes(meta_of(tensor)->spec);
  const SpecPtr target = intern_spec(mesh, to, from->sizes, from->strides);
  if (stays_on_one_mesh(*from, mesh, options)) return target;
  return crossing_between(from, target, tensor.scalar_type(), options)->target;
}

bool stays_on_one_mesh(const Spec& from, const DeviceMesh& mesh, const RedistributeOptions& options) {
  // Every slice has ranks of its own: there is nothing to choose among.
  if (options.relabel && mesh == from.mesh) return false;
  return is_slice(mesh, from.mesh) || is_slice(from.mesh, mesh);
}

std::string text_of_way(const Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                        const RedistributeOptions& options) {
  const SpecPtr& given = meta_of(tensor)->spec;
  if (given->boxes && given->mesh == mesh && !options.relabel) return "exchange of boxes";
  const SpecPtr from = without_boxes(given);
  const std::string first = given->boxes ? "exchange of boxes, " : "";
  const auto on = [&](const DeviceMesh& one, const Placements& before, const Placements& after) {
    const SpecPtr spec = intern_spec(one, before, from->sizes, from->strides);
    const SpecPtr target = intern_spec(one, after, from->sizes, from->strides);
    return first + to_string(plan_between(spec, target, tensor.scalar_type(), options)->plan, one.mesh());
  };
  if (stays_on_one_mesh(*from, mesh, options)) {
    if (is_slice(from->mesh, mesh)) return on(mesh, lifted_placements(from->placements, from->mesh, mesh), to);
    return on(from->mesh, from->placements, lifted_placements(to, mesh, from->mesh));
  }
  const SpecPtr target = intern_spec(mesh, to, from->sizes, from->strides);
  const CrossingPtr way = crossing_between(from, target, tensor.scalar_type(), options);
  return first + to_string(way->plan, way->target->mesh.mesh());
}

}  // namespace sherd::detail
