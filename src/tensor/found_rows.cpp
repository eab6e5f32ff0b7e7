#include "tensor/found_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"
#include "tensor/rewrites.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Whether the tensor is sharded along its first dim, in pieces, and nowhere else: then the order of the ranks is that
// of the elements.
bool in_rows(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr || !Pieces::of(tensor, 0)) return false;
  for (const Placement& p : meta->spec->placements) {
    if (is_shard(p) && sharded_dim(p) != 0) return false;
  }
  return true;
}

bool is_sharded_anywhere(const Tensor& tensor) {
  Dims dims;
  for (int64_t d = 0; d < tensor.dim(); ++d) dims.push_back(d);
  return any_sharded(tensor, dims);
}

// What each piece found, as many rows as there are, is a part of a tensor cut where they end. A rank outside the mesh
// does not know how many: it has a tensor without rows.
Tensor joined(const Pieces& pieces, const Tensor& self, const Tensor& found) {
  const SpecPtr& spec = meta_of(self)->spec;
  const Tensor counts = pieces.gather(at::tensor({found.size(0)}, found.options().dtype(c10::kLong))).cpu();
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < counts.size(0); ++i) rows.push_back(counts[i].item<int64_t>());
  Dims sizes = found.sizes().vec();
  sizes[0] = counts.sum().item<int64_t>();
  const Placements placements = pieces.placements_for(whole_on(spec->mesh), rows);
  return from_parts(spec->mesh, placements, sizes, found);
}

// The placements of a tensor that is a sum over what the ranks of `self` hold.
Placements sum_over(const Tensor& self) {
  Placements placements = whole_on(meta_of(self)->spec->mesh);
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (is_shard(meta_of(self)->spec->placements[axis])) placements[axis] = Partial();
  }
  return placements;
}

}  // namespace

// nonzero(self): one row of coordinates per element.
bool find_nonzero(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  if (given.dim() == 0 || !in_rows(given)) return false;
  const Tensor self = reduced(given);
  const Pieces pieces = *Pieces::of(self, 0);
  Tensor found = at::nonzero(part_of(self));
  found.select(1, 0).add_(pieces.mine().begin);
  answer(op, stack, joined(pieces, self, found));
  return true;
}

// masked_select(self, mask).
bool select_masked(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const Tensor mask = argument(stack, op, 1).toTensor();
  if (given.dim() == 0 || given.sizes() != mask.sizes() || meta_of(given) == nullptr || meta_of(mask) == nullptr ||
      mask.scalar_type() != c10::kBool || !(meta_of(given)->spec->mesh == meta_of(mask)->spec->mesh)) {
    return false;
  }
  const bool by_self = in_rows(given);
  if (!by_self && !in_rows(mask)) return false;
  const Tensor guide = reduced(by_self ? given : mask);
  const Placements& to = meta_of(guide)->spec->placements;
  const DeviceMesh& mesh = meta_of(guide)->spec->mesh;
  const Tensor found = at::masked_select(part_of(placed(given, mesh, to)), part_of(placed(mask, mesh, to)));
  answer(op, stack, joined(*Pieces::of(guide, 0), guide, found));
  return true;
}

// bincount(self, weights, minlength) of a sharded vector.
bool count_numbers(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (self.dim() != 1 || self.numel() == 0 || !is_sharded_anywhere(self)) return false;
  if (meta_of(self)->spec->has_partial || self.is_floating_point()) return false;
  if (at::amin(self).item<int64_t>() < 0) return not_for_these_data();  // torch says what is wrong, on every rank
  const int64_t length = std::max(at::amax(self).item<int64_t>() + 1, argument(stack, op, 2).toInt());
  const SpecPtr spec = meta_of(self)->spec;
  std::optional<Tensor> weights = optional_tensor(argument(stack, op, 1));
  if (weights) {
    if (weights->sizes() != self.sizes()) return false;
    weights = part_of(placed(*weights, spec->mesh, spec->placements));
  }
  Tensor counts = at::bincount(part_of(self), weights, length);
  if (weights)
    counts = counts.to(weights->scalar_type() == c10::kFloat ? c10::kFloat : c10::kDouble);  // empty ones too
  answer(op, stack, from_parts(spec->mesh, sum_over(self), {length}, counts));
  return true;
}

// histc(self, bins, min, max): without a range the data's own.
bool count_in_bins(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (self.numel() == 0 || !self.is_floating_point() || !is_sharded_anywhere(self)) return false;
  if (meta_of(self)->spec->has_partial) return false;
  double low = argument(stack, op, 2).toScalar().toDouble();
  double high = argument(stack, op, 3).toScalar().toDouble();
  if (low == high) {
    low = at::amin(self).item<double>();
    high = at::amax(self).item<double>();
    if (low == high) {
      low -= 1;
      high += 1;
    }
  }
  const int64_t bins = argument(stack, op, 1).toInt();
  // Torch says what is wrong, on every rank. The range is no part of a plan's key: others would be served by the plan.
  if (!std::isfinite(low) || !std::isfinite(high) || low > high || bins < 1) return not_for_these_data();
  const SpecPtr spec = meta_of(self)->spec;
  const Tensor part = part_of(self);
  const Tensor counts = part.numel() > 0 ? at::histc(part, bins, low, high) : at::zeros({bins}, part.options());
  answer(op, stack, from_parts(spec->mesh, sum_over(self), {bins}, counts));
  return true;
}

// _unique2(self, sorted, return_inverse, return_counts) -> values, inverse, counts. Integers alone: NaN equals nothing.
bool find_unique(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (self.numel() == 0 || self.is_floating_point() || self.is_complex() || !is_sharded_anywhere(self)) return false;
  const SpecPtr spec = meta_of(self)->spec;
  if (spec->has_partial) return false;
  const bool takes_part = spec->mesh.coordinate().has_value();
  const Tensor part = takes_part ? part_of(self) : at::empty({0}, meta_of(self)->local.options());
  auto [values, inverse, counts] = at::_unique2(part, true, false, true);
  // Axis by axis the ranks tell each other what they found.
  for (int64_t axis = 0; takes_part && axis < spec->mesh.ndim(); ++axis) {
    if (!is_shard(spec->placements[static_cast<size_t>(axis)]) || spec->mesh.size(axis) == 1) continue;
    const int64_t ranks = spec->mesh.size(axis);
    Placements one = whole_on(spec->mesh);
    one[static_cast<size_t>(axis)] = Shard(0);
    const auto along = Pieces::of(spec->mesh, one, {ranks}, 0);
    const Tensor sizes = along->gather(at::tensor({values.size(0)}, counts.options())).cpu();
    const auto all = [&](const Tensor& own) {
      Tensor padded = at::zeros({sizes.max().item<int64_t>()}, own.options());
      padded.narrow(0, 0, own.size(0)).copy_(own);
      const Tensor gathered = along->gather(padded);
      std::vector<Tensor> kept;
      for (int64_t i = 0; i < ranks; ++i) {
        kept.push_back(gathered.narrow(0, i * padded.size(0), sizes[i].item<int64_t>()));
      }
      return at::cat(kept);
    };
    const Tensor candidates = all(values);
    const Tensor candidate_counts = all(counts);
    const auto [merged, places, unused] = at::_unique2(candidates, true, true, false);
    values = merged;
    counts = at::zeros({merged.size(0)}, counts.options()).index_add(0, places, candidate_counts);
  }
  const bool wants_inverse = argument(stack, op, 2).toBool();
  const bool wants_counts = argument(stack, op, 3).toBool();
  const Placements whole = whole_on(spec->mesh);
  const Tensor nothing = at::empty({0}, counts.options());
  Tensor places = from_parts(spec->mesh, whole, {0}, nothing);
  if (wants_inverse) {
    const Tensor own = part.scalar_type() == c10::kBool ? at::searchsorted(values.to(c10::kByte), part.to(c10::kByte))
                                                        : at::searchsorted(values, part.contiguous());
    places = from_parts(spec->mesh, spec->placements, spec->sizes, own);
  }
  answer(op, stack, from_parts(spec->mesh, whole, values.sizes().vec(), values));
  stack.emplace_back(places);
  stack.emplace_back(
      from_parts(spec->mesh, whole, {wants_counts ? counts.size(0) : 0}, wants_counts ? counts : nothing));
  return true;
}

}  // namespace sherd::detail
