#include "sherd/context_parallel.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "comm/errors.h"
#include "parallel/axis_of.h"
#include "parallel/ring_attention.h"
#include "sherd/dtensor.h"
#include "tensor/attention_scope.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::AttentionCall;
using Method = ContextParallelOptions::Method;

constexpr int64_t kPieces = 16;  // of each rank, in a balanced cut
constexpr int64_t kHeads = 1;
constexpr int64_t kSequence = 2;

size_t at_axis(int64_t axis) { return static_cast<size_t>(axis); }

/// The axis of the query's mesh that cuts its sequence and is `axis`.
std::optional<int64_t> cutting_axis(const AttentionCall& call, const DeviceMesh& axis) {
  for (const Tensor* tensor : {&call.query, &call.key, &call.value}) {
    if (!is_dtensor(*tensor) || tensor->dim() != 4 || tensor->numel() == 0) return std::nullopt;
  }
  const DeviceMesh mesh = mesh_of(call.query);
  if (mesh_of(call.key) != mesh || mesh_of(call.value) != mesh) return std::nullopt;
  const auto found = detail::axis_of(mesh, axis);
  if (!found || mesh.size(*found) == 1 || sharded_dim(placements_of(call.query)[at_axis(*found)]) != kSequence) {
    return std::nullopt;
  }
  return found;
}

/// How many ways the axes other than `axis` that cut `dim` cut it; those to the right of it alone where asked.
int64_t cuts_of(const DeviceMesh& mesh, const Placements& placements, int64_t dim, int64_t axis, bool right_alone) {
  int64_t cuts = 1;
  for (int64_t a = right_alone ? axis + 1 : 0; a < mesh.ndim(); ++a) {
    if (a != axis && sharded_dim(placements[at_axis(a)]) == dim) cuts *= mesh.size(a);
  }
  return cuts;
}

/// How the query's placements become the ring's: the axis cuts the sequence and nothing else does; batch and heads stay
/// cut where query and keys can be cut alike.
Placements ring_placements(const AttentionCall& call, int64_t axis) {
  const DeviceMesh mesh = mesh_of(call.query);
  Placements placements = placements_of(call.query);
  const int64_t cuts = cuts_of(mesh, placements, kHeads, axis, false);
  const bool same_heads = call.query.size(kHeads) == call.key.size(kHeads);
  const bool heads_divide = call.query.size(kHeads) % cuts == 0 && call.key.size(kHeads) % cuts == 0;
  const bool cut_by_others = cuts_of(mesh, placements, kSequence, axis, false) > 1;
  for (int64_t a = 0; a < mesh.ndim(); ++a) {
    Placement& p = placements[at_axis(a)];
    if (a == axis) {
      if (cut_by_others) p = Shard(kSequence);
      continue;
    }
    const int64_t dim = sharded_dim(p);
    const bool heads_stay = same_heads || (heads_divide && std::holds_alternative<Shard>(p));
    if (dim != 0 && !(dim == kHeads && heads_stay)) p = Replicate();
  }
  return placements;
}

std::vector<std::vector<Run>> runs_of_ranks(const Tensor& tensor, int64_t axis) {
  const Layout layout = layout_of(tensor);
  Dims coordinate = *mesh_of(tensor).coordinate();
  std::vector<std::vector<Run>> runs;
  for (int64_t i = 0; i < layout.mesh.size(axis); ++i) {
    coordinate[at_axis(axis)] = i;
    runs.push_back(local_runs(layout, kSequence, coordinate));
  }
  return runs;
}

/// This rank's rows of the mask, as [batch, heads, queries, keys] or with ones in it: cut as the query is, the keys
/// whole. A plain mask is cut where it lies. Nothing where the operator must see to it: a mask of another mesh or
/// shape, or one with a gradient, which queries of other ranks have a part in.
std::optional<Tensor> mask_rows(const Tensor& mask, const AttentionCall& call, const Placements& query) {
  if (mask.dim() > 4 || (mask.requires_grad() && c10::GradMode::is_enabled())) return std::nullopt;
  const DeviceMesh mesh = mesh_of(call.query);
  if (is_dtensor(mask) && mesh_of(mask) != mesh) return std::nullopt;
  Tensor whole = mask;
  while (whole.dim() < 4) whole = whole.unsqueeze(0);
  const Dims scores{call.query.size(0), call.query.size(kHeads), call.query.size(kSequence), call.key.size(kSequence)};
  for (int64_t d = 0; d < 4; ++d) {
    if (whole.size(d) != 1 && whole.size(d) != scores[static_cast<size_t>(d)]) return std::nullopt;
  }
  Placements placements = query;
  for (Placement& p : placements) {
    const int64_t dim = sharded_dim(p);
    if (dim < 0 || whole.size(dim) == 1) p = Replicate();
  }
  return to_local(is_dtensor(whole) ? redistribute(whole, placements)
                                    : distribute_tensor(whole, mesh, placements, {.source = std::nullopt}));
}

std::optional<Tensor> attend_in_ring(const AttentionCall& call, const DeviceMesh& scope) {
  const bool masked = call.mask && call.mask->defined();
  if ((masked && call.causal) || call.dropout > 0) return std::nullopt;
  const auto axis = cutting_axis(call, scope);
  const bool one_batch = call.query.size(0) == call.key.size(0) && call.key.size(0) == call.value.size(0);
  if (!axis || !one_batch || call.key.size(kHeads) != call.value.size(kHeads)) return std::nullopt;
  if (call.query.size(kHeads) != call.key.size(kHeads) && !call.grouped) return std::nullopt;
  const Placements placements = ring_placements(call, *axis);
  const std::optional<Tensor> mask = masked ? mask_rows(*call.mask, call, placements) : Tensor();
  if (!mask) return std::nullopt;
  Placements key_placements = placements;
  // Keys may have a cut of their own, and must where their number is another.
  const Placements& keys = placements_of(call.key);
  const bool keys_cut =
      sharded_dim(keys[at_axis(*axis)]) == kSequence && cuts_of(mesh_of(call.key), keys, kSequence, *axis, false) == 1;
  if (keys_cut) {
    key_placements[at_axis(*axis)] = keys[at_axis(*axis)];
  } else if (call.key.size(kSequence) != call.query.size(kSequence)) {
    key_placements[at_axis(*axis)] = Shard(kSequence);
  }
  const Tensor query = redistribute(call.query, placements);
  const Tensor key = redistribute(call.key, key_placements);
  const Tensor value = redistribute(call.value, key_placements);
  const DeviceMesh mesh = mesh_of(query);
  detail::Ring ring{mesh.group(*axis),
                    runs_of_ranks(query, *axis),
                    runs_of_ranks(key, *axis),
                    call.causal,
                    call.scale.value_or(1 / std::sqrt(static_cast<double>(call.query.size(3)))),
                    *mask};
  const Tensor local = detail::ring_attention(to_local(query), to_local(key), to_local(value), std::move(ring));
  Dims shape = query.sizes().vec();
  shape[3] = value.size(3);
  return from_local(local, mesh, placements, {.shape = shape});
}

void check_heads(const AttentionCall& call, const DeviceMesh& mesh, int64_t axis) {
  const int64_t others = cuts_of(mesh, placements_of(call.query), kHeads, axis, false);
  const int64_t parts = others * mesh.size(axis);
  for (const auto& [name, tensor] : {std::pair{"query", &call.query}, {"key", &call.key}}) {
    if (tensor->size(kHeads) % parts == 0) continue;
    detail::throw_value_error(
        ErrorText("ContextParallel", fmt::format("the heads of the {} do not divide among the ranks", name))
            .fact(name, to_string(*tensor))
            .fact("heads", std::to_string(tensor->size(kHeads)))
            .fact("ranks that would share them", std::to_string(parts))
            .help("ContextParallel scope(mesh, {.method = ContextParallelOptions::Method::ring})"));
  }
}

std::optional<Tensor> attend_by_heads(const AttentionCall& call, const DeviceMesh& scope) {
  const auto axis = cutting_axis(call, scope);
  if (!axis) return std::nullopt;
  const DeviceMesh mesh = mesh_of(call.query);
  check_heads(call, mesh, *axis);
  const Placements before = placements_of(call.query);
  // Axes to the right that cut the heads already keep theirs: this one cuts what they left.
  const int64_t right = cuts_of(mesh, before, kHeads, *axis, true);
  Placements by_heads = before;
  by_heads[at_axis(*axis)] = right == 1 ? Placement(Shard(kHeads)) : Placement(StridedShard(kHeads, right));
  const Tensor query = redistribute(call.query, by_heads);
  const Tensor key = redistribute(call.key, by_heads);
  const Tensor value = redistribute(call.value, by_heads);
  const Tensor result =
      detail::ordinary_attention({query, key, value, call.mask, call.dropout, call.causal, call.scale, call.grouped});
  return redistribute(result, before);
}

}  // namespace

struct ContextParallel::State {
  explicit State(detail::AttentionHandler handler) : scope(std::move(handler)) {}
  detail::AttentionScope scope;
};

ContextParallel::ContextParallel(const DeviceMesh& axis, const ContextParallelOptions& options) {
  detail::require_one_axis("ContextParallel", axis);
  const auto attend = options.method == Method::ring ? attend_in_ring : attend_by_heads;
  state_ = std::make_unique<State>([attend, axis](const AttentionCall& call) { return attend(call, axis); });
}

ContextParallel::~ContextParallel() = default;

Placement balanced_shard(int64_t dim, int64_t length, int64_t ranks) {
  for (int64_t pieces = kPieces; pieces > 1; --pieces) {
    // Equal pieces alone: rows that are left over would all go to the first ranks, once for each piece.
    if (length > 0 && length % (pieces * ranks) == 0) return StridedShard(dim, pieces);
  }
  return Shard(dim);
}

Tensor context_parallel_shard(const Tensor& tensor, const DeviceMesh& axis, int64_t dim) {
  detail::require_one_axis("context_parallel_shard", axis);
  const int64_t d = dim < 0 ? dim + tensor.dim() : dim;
  if (d < 0 || d >= tensor.dim()) {
    detail::throw_value_error(ErrorText("context_parallel_shard", "the tensor has no such dim")
                                  .fact("dim", std::to_string(dim))
                                  .fact("tensor", to_string(tensor))
                                  .help("the dim of the positions: 1 of [batch, length]"));
  }
  const Placement cut = balanced_shard(d, tensor.size(d), axis.size());
  if (!is_dtensor(tensor)) return distribute_tensor(tensor, axis, {cut}, {.source = std::nullopt});
  const auto found = detail::axis_of(mesh_of(tensor), axis);
  if (!found) {
    detail::throw_value_error(ErrorText("context_parallel_shard", "the tensor's mesh does not have the axis")
                                  .fact("tensor", to_string(tensor))
                                  .fact("axis", to_string(axis))
                                  .help("distribute the tensor on the mesh that the axis was sliced from"));
  }
  Placements placements = placements_of(tensor);
  placements[at_axis(*found)] = cut;
  return redistribute(tensor, placements);
}

}  // namespace sherd
