#include "tensor/row_moves.h"

#include <ATen/native/TypeProperties.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/roll.h>

#include <algorithm>

#include "tensor/edges.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Whether every dim of these that is sharded is so in pieces.
bool in_pieces(const Tensor& self, const Dims& dims) {
  for (const int64_t d : dims) {
    if (is_sharded(*meta_of(self), d) && !Pieces::of(self, d)) return false;
  }
  return true;
}

}  // namespace

// flip(self, dims).
bool flip_rows(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const Dims asked = argument(stack, op, 1).toIntVector();
  if (asked.empty() || meta_of(given) == nullptr) return false;
  const auto dims = dims_named(given, asked);
  if (!dims || !any_sharded(given, *dims) || !in_pieces(given, *dims)) return false;
  const Tensor self = reduced(given);
  Tensor part = part_of(self);
  for (const int64_t d : *dims) {
    const auto pieces = Pieces::of(self, d);
    if (!pieces) continue;
    part = pieces->exchange(part, plan::flipped(pieces->rows(), self.size(d)));
  }
  const SpecPtr& spec = meta_of(self)->spec;
  answer(op, stack, from_parts(spec->mesh, spec->placements, spec->sizes, at::flip(part, *dims)));
  return true;
}

// roll(self, shifts, dims).
bool roll_rows(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const Dims shifts = argument(stack, op, 1).toIntVector();
  const Dims asked = argument(stack, op, 2).toIntVector();
  if (asked.empty() || asked.size() != shifts.size() || meta_of(given) == nullptr || given.numel() == 0) return false;
  const auto dims = dims_named(given, asked);
  if (!dims || !any_sharded(given, *dims) || !in_pieces(given, *dims)) return false;
  const Tensor self = reduced(given);
  Tensor part = part_of(self);
  for (size_t i = 0; i < dims->size(); ++i) {
    const auto pieces = Pieces::of(self, (*dims)[i]);
    if (!pieces) {
      part = at::roll(part, shifts[i], (*dims)[i]);
      continue;
    }
    part = pieces->exchange(part, plan::rolled(pieces->rows(), self.size((*dims)[i]), shifts[i]));
  }
  const SpecPtr& spec = meta_of(self)->spec;
  answer(op, stack, from_parts(spec->mesh, spec->placements, spec->sizes, part));
  return true;
}

// constant_pad_nd(self, pad, value): pairs of numbers from the last dim on. Row r of a dim is row r - first of what it
// was, where it had that row.
bool pad_rows(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const Dims pads = argument(stack, op, 1).toIntVector();
  if (meta_of(given) == nullptr || pads.size() % 2 != 0 || static_cast<int64_t>(pads.size()) / 2 > given.dim()) {
    return false;
  }
  Dims sizes = given.sizes().vec();
  Dims padded;
  Dims first(sizes.size(), 0);
  for (size_t i = 0; 2 * i < pads.size(); ++i) {
    const size_t d = sizes.size() - 1 - i;
    first[d] = pads[2 * i];
    sizes[d] += pads[2 * i] + pads[2 * i + 1];
    if (sizes[d] < 0) return false;  // torch says what is wrong
    if (pads[2 * i] != 0 || pads[2 * i + 1] != 0) padded.push_back(static_cast<int64_t>(d));
  }
  if (!any_sharded(given, padded) || !in_pieces(given, padded)) return false;
  const Tensor self = reduced(given);
  const SpecPtr& spec = meta_of(self)->spec;
  Placements placements = spec->placements;
  for (Placement& p : placements) {
    if (std::find(padded.begin(), padded.end(), sharded_dim(p)) != padded.end()) p = Shard(sharded_dim(p));
  }
  Tensor part = part_of(self);
  Dims local_pads = pads;
  for (const int64_t d : padded) {
    const auto from = Pieces::of(self, d);
    const auto to = Pieces::of(spec->mesh, placements, sizes, d);
    if (!from || !to) continue;  // not sharded: padded as it is
    const int64_t begin = first[static_cast<size_t>(d)];
    part = from->exchange(part, plan::set_at(to->rows(), self.size(d), begin));
    // Where this rank's rows begin before the tensor's, or end after them.
    const int64_t missing = to->mine().size() - part.size(d);
    const int64_t before = std::clamp<int64_t>(begin - to->mine().begin, 0, missing);
    const size_t pair = 2 * static_cast<size_t>(self.dim() - 1 - d);
    local_pads[pair] = before;
    local_pads[pair + 1] = missing - before;
  }
  const Tensor result = at::constant_pad_nd(part, local_pads, argument(stack, op, 2).toScalar());
  answer(op, stack, from_parts(spec->mesh, placements, sizes, result));
  return true;
}

// cat(tensors, dim).
bool cat_rows(const c10::OperatorHandle& op, Stack& stack) {
  const std::vector<Tensor> tensors = argument(stack, op, 0).toTensorVector();
  // The first that is sharded along the dim says how the others are placed, too.
  const Tensor* guide = nullptr;
  std::optional<int64_t> dim;
  for (const Tensor& tensor : tensors) {
    if (guide != nullptr || meta_of(tensor) == nullptr) continue;
    dim = sharded_dim_named(tensor, argument(stack, op, 1));
    if (dim) guide = &tensor;
  }
  if (guide == nullptr) return false;
  const SpecPtr spec = meta_of(*guide)->spec;
  Dims sizes = spec->sizes;
  sizes[static_cast<size_t>(*dim)] = 0;
  std::vector<Tensor> taking_part;
  for (const Tensor& tensor : tensors) {
    if (tensor.dim() == 1 && tensor.numel() == 0) continue;  // torch lets these be, but for their dtype
    if (tensor.dim() != guide->dim()) return false;
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (d != *dim && tensor.size(d) != guide->size(d)) return false;
    }
    const DTensorMeta* meta = meta_of(tensor);
    if (meta != nullptr && !(meta->spec->mesh == spec->mesh)) return false;
    sizes[static_cast<size_t>(*dim)] += tensor.size(*dim);
    taking_part.push_back(tensor);
  }
  if (taking_part.empty()) return false;
  // The result: as the guide, but cut evenly along the dim; its Partials are reduced.
  Placements placements = grad_placements_for(spec->placements);
  Placements others = placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (sharded_dim(placements[axis]) != *dim) continue;
    placements[axis] = Shard(*dim);
    others[axis] = Replicate();
  }
  const auto out = Pieces::of(spec->mesh, placements, sizes, *dim);
  if (!out) return false;
  const c10::ScalarType type = at::native::result_type(tensors);
  std::vector<Tensor> parts;
  int64_t offset = 0;
  for (const Tensor& tensor : taking_part) {
    const int64_t size = tensor.size(*dim);
    const WantedRows wanted = plan::set_at(out->rows(), size, offset);
    offset += size;
    const Placements whole(placements.size(), Replicate());
    const Tensor distributed =
        meta_of(tensor) != nullptr ? tensor : from_parts(spec->mesh, whole, tensor.sizes().vec(), tensor);
    // Cut along the dim by the same axes it is exchanged, otherwise brought there whole and sliced.
    Placements to = others;
    bool same_axes = true;
    for (size_t axis = 0; axis < to.size(); ++axis) {
      const Placement& now = meta_of(distributed)->spec->placements[axis];
      same_axes &= (sharded_dim(now) == *dim) == (sharded_dim(placements[axis]) == *dim);
    }
    if (same_axes && Pieces::of(distributed, *dim)) {
      for (size_t axis = 0; axis < to.size(); ++axis) {
        const Placement& now = meta_of(distributed)->spec->placements[axis];
        if (sharded_dim(now) == *dim) to[axis] = now;
      }
    }
    const Tensor there = placed(distributed, spec->mesh, to);
    const Tensor part = part_of(there).to(type);
    if (const auto pieces = Pieces::of(there, *dim)) {
      parts.push_back(pieces->exchange(part, wanted));
    } else {
      const Rows& rows = wanted[out->here()][0];
      parts.push_back(part.narrow(*dim, rows.begin, rows.size()));
    }
  }
  answer(op, stack, from_parts(spec->mesh, placements, sizes, at::cat(parts, *dim)));
  return true;
}

}  // namespace sherd::detail
