#include "tensor/candidates.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "plan/placement_lists.h"
#include "tensor/edges.h"
#include "tensor/pieces.h"
#include "tensor/redistributed.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Values and their rows in the whole dim.
struct Candidates {
  Tensor values;
  Tensor indices;
};

// What all pieces name, one after the other, piece i `counts[i]` of them. Parts have as many rows as the largest count,
// of which the first ones count.
Candidates gather(const Pieces& pieces, const Candidates& own, const std::vector<int64_t>& counts) {
  const int64_t dim = pieces.dim();
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const auto gathered = [&](const Tensor& part) {
    Dims sizes = part.sizes().vec();
    sizes[static_cast<size_t>(dim)] = most;
    Tensor padded = at::zeros(sizes, part.options());
    padded.narrow(dim, 0, part.size(dim)).copy_(part);
    return pieces.gather(padded);
  };
  std::vector<int64_t> rows;
  for (size_t i = 0; i < counts.size(); ++i) {
    for (int64_t k = 0; k < counts[i]; ++k) rows.push_back(static_cast<int64_t>(i) * most + k);
  }
  const Tensor kept = at::tensor(rows, own.indices.options().dtype(c10::kLong));
  return {gathered(own.values).index_select(dim, kept), gathered(own.indices).index_select(dim, kept)};
}

// A result of which the dim has `rows` rows, or is gone.
Tensor result_of(const Tensor& self, int64_t dim, int64_t rows, bool dim_goes, const Tensor& part) {
  Dims sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim)] = rows;
  if (dim_goes) sizes.erase(sizes.begin() + dim);
  return from_parts(meta_of(self)->spec->mesh, plan::without_dim(meta_of(self)->spec->placements, dim, dim_goes), sizes,
                    dim_goes ? part.squeeze(dim) : part);
}

// The k largest or smallest of every piece, together on every rank.
struct Best {
  Tensor self;  // reduced
  int64_t dim = 0;
  int64_t k = 0;
  Candidates all;
};

// (self, k, dim, ...). Nothing where the dim is not in pieces, k is none of its rows, or all values are fewer bytes.
std::optional<Best> best_of_pieces(const c10::OperatorHandle& op, const Stack& stack, bool largest) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 2));
  const int64_t k = argument(stack, op, 1).toInt();
  if (!dim || k < 1 || k > given.size(*dim) || !Pieces::of(given, *dim)) return std::nullopt;
  const std::vector<int64_t> counts = plan::candidate_counts(Pieces::of(given, *dim)->rows(), k);
  const auto element_size = static_cast<int64_t>(given.element_size());
  if (!plan::candidates_are_fewer(counts, given.size(*dim), element_size)) return std::nullopt;
  const Tensor self = reduced(given);
  const Pieces pieces = *Pieces::of(self, *dim);
  const auto [own, rows] = at::topk(part_of(self), counts[pieces.here()], *dim, largest, true);
  return Best{self, *dim, k, gather(pieces, {own, rows + pieces.mine().begin}, counts)};
}

bool is_max(const c10::OperatorHandle& op) { return op.operator_name().name.ends_with("max"); }

std::tuple<Tensor, Tensor> extreme(bool max, const Tensor& tensor, int64_t dim) {
  return max ? at::max(tensor, dim, true) : at::min(tensor, dim, true);
}

// The extreme along the dim with its row, one of each on every rank.
Candidates extreme_of(const Pieces& pieces, const Tensor& self, bool max) {
  const int64_t dim = pieces.dim();
  const Tensor part = part_of(self);
  Dims one = part.sizes().vec();
  one[static_cast<size_t>(dim)] = 0;
  Candidates own = {at::zeros(one, part.options()), at::zeros(one, part.options().dtype(c10::kLong))};
  if (part.size(dim) > 0) {
    const auto [values, indices] = extreme(max, part, dim);
    own = {values, indices + pieces.mine().begin};
  }
  const Candidates all = gather(pieces, own, plan::candidate_counts(pieces.rows(), 1));
  const auto [values, which] = extreme(max, all.values, dim);
  return {values, all.indices.gather(dim, which)};
}

// argmax(self) of all elements: the places in the whole tensor, flat, of what each rank found.
bool pick_place_of_all(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  Dims dims;
  for (int64_t d = 0; d < given.dim(); ++d) dims.push_back(d);
  if (!any_sharded(given, dims) || given.numel() == 0) return false;
  for (const Placement& p : meta_of(given)->spec->placements) {
    if (std::holds_alternative<StridedShard>(p)) return false;
  }
  const Tensor self = reduced(given);
  const SpecPtr& spec = meta_of(self)->spec;
  const Tensor part = part_of(self).contiguous();
  Tensor value = at::zeros({1}, part.options());
  Tensor place = at::full({1}, -1, part.options().dtype(c10::kLong));
  if (part.numel() > 0 && spec->mesh.coordinate()) {
    const Tensor found = is_max(op) ? at::argmax(part.view(-1)) : at::argmin(part.view(-1));
    value = part.view(-1).index_select(0, found.view(1));
    const Dims offset = local_offset(spec->layout(), *spec->mesh.coordinate());
    Tensor rest = found.view(1);
    place = at::zeros_like(rest);
    int64_t stride = 1;
    for (int64_t d = self.dim() - 1; d >= 0; --d) {
      place = place + (rest.remainder(part.size(d)) + offset[static_cast<size_t>(d)]) * stride;
      rest = rest.div(part.size(d), "floor");
      stride *= self.size(d);
    }
  }
  // One candidate for each place along the axes that shard anything.
  Placements placements = spec->placements;
  int64_t ranks = 1;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (is_replicate(placements[axis])) continue;
    placements[axis] = Shard(0);
    ranks *= spec->mesh.size(static_cast<int64_t>(axis));
  }
  const Placements whole(placements.size(), Replicate());
  check_rewritten(to_string(spec->placements) + ": each rank's candidate is told to all", "to Replicate()");
  const auto all = [&](const Tensor& own) {
    const Tensor parts = redistributed(from_parts(spec->mesh, placements, {ranks}, own), whole);
    return spec->mesh.coordinate() ? part_of(parts) : at::zeros({ranks}, own.options());
  };
  const Tensor values = all(value);
  const Tensor places = all(place);
  Tensor result = at::zeros({}, places.options());
  if (spec->mesh.coordinate()) {
    const Tensor there = places.ge(0).nonzero().view(-1);
    const Tensor candidates = values.index_select(0, there);
    const Tensor best = is_max(op) ? at::amax(candidates) : at::amin(candidates);
    Tensor same = candidates.eq(best);
    if (candidates.is_floating_point()) same = same.logical_or(at::isnan(candidates));
    const Tensor ranked = places.index_select(0, there);
    result = at::where(same, ranked, self.numel()).min();
  }
  Dims sizes;
  if (argument(stack, op, 2).toBool()) sizes.assign(static_cast<size_t>(self.dim()), 1);
  answer(op, stack, from_parts(spec->mesh, whole, sizes, result.view(sizes)));
  return true;
}

}  // namespace

// max.dim(self, dim, keepdim) and min.dim -> values, indices. Of equal values the first counts.
bool pick_extreme(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 1));
  if (!dim || !Pieces::of(given, *dim)) return false;
  const Tensor self = reduced(given);
  const bool keep = argument(stack, op, 2).toBool();
  const Candidates best = extreme_of(*Pieces::of(self, *dim), self, is_max(op));
  answer(op, stack, result_of(self, *dim, 1, !keep, best.values));
  stack.emplace_back(result_of(self, *dim, 1, !keep, best.indices));
  return true;
}

// argmax(self, dim, keepdim) and argmin.
bool pick_place(const c10::OperatorHandle& op, Stack& stack) {
  if (argument(stack, op, 1).isNone()) return pick_place_of_all(op, stack);
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 1));
  if (!dim || !Pieces::of(given, *dim)) return false;
  const Tensor self = reduced(given);
  const bool keep = argument(stack, op, 2).toBool();
  const Candidates best = extreme_of(*Pieces::of(self, *dim), self, is_max(op));
  answer(op, stack, result_of(self, *dim, 1, !keep, best.indices));
  return true;
}

// topk(self, k, dim, largest, sorted) -> values, indices.
bool pick_several(const c10::OperatorHandle& op, Stack& stack) {
  const bool largest = argument(stack, op, 3).toBool();
  const auto best = best_of_pieces(op, stack, largest);
  if (!best) return false;
  const auto& [self, dim, k, all] = *best;
  const auto [values, which] = at::topk(all.values, k, dim, largest, argument(stack, op, 4).toBool());
  answer(op, stack, result_of(self, dim, k, false, values));
  stack.emplace_back(result_of(self, dim, k, false, all.indices.gather(dim, which)));
  return true;
}

// kthvalue(self, k, dim, keepdim) -> values, indices: the k-th smallest is among the k smallest of each rank.
bool pick_kth(const c10::OperatorHandle& op, Stack& stack) {
  const auto best = best_of_pieces(op, stack, false);
  if (!best) return false;
  const auto& [self, dim, k, all] = *best;
  const bool keep = argument(stack, op, 3).toBool();
  const auto [values, which] = at::kthvalue(all.values, k, dim, true);
  answer(op, stack, result_of(self, dim, 1, !keep, values));
  stack.emplace_back(result_of(self, dim, 1, !keep, all.indices.gather(dim, which)));
  return true;
}

// aminmax(self, dim, keepdim) -> min, max.
bool pick_both(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const c10::IValue dim = argument(stack, op, 1);
  const bool keep = argument(stack, op, 2).toBool();
  const auto dims = dims_named(self, dim.isNone() ? dim : c10::IValue(Dims{dim.toInt()}));
  if (!dims || !any_sharded(self, *dims) || self.numel() == 0) return false;
  answer(op, stack, at::amin(self, *dims, keep));
  stack.emplace_back(at::amax(self, *dims, keep));
  return true;
}

}  // namespace sherd::detail
