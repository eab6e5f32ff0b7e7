#include "tensor/own_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "tensor/edges.h"
#include "tensor/local_kernels.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"
#include "tensor/rewrites.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Whether all indices name rows of a dim of `size` rows, without counting from its end. All ranks see the same answer;
// where it is no, torch says what is wrong, or wraps them.
bool in_range(const Tensor& index, int64_t size) {
  if (index.numel() == 0) return true;
  return at::amin(index).item<int64_t>() >= 0 && at::amax(index).item<int64_t>() < size;
}

// The part with one row too many: the place for what belongs to other ranks.
Tensor with_spare_row(const Tensor& part, int64_t dim) {
  Dims one = part.sizes().vec();
  one[static_cast<size_t>(dim)] = 1;
  return at::cat({part, at::zeros(one, part.options())}, dim);
}

Tensor is_foreign(const Tensor& index, const Rows& mine) { return index.lt(mine.begin).logical_or(index.ge(mine.end)); }

// Answers with the parts that were written: a new tensor, or the tensor itself.
void answer_with(const c10::OperatorHandle& op, Stack& stack, const Tensor& self, const Tensor& part) {
  DTensorMeta* meta = meta_of(self);
  if (!op.schema().is_mutable()) {
    answer(op, stack, from_parts(meta->spec->mesh, meta->spec->placements, meta->spec->sizes, part));
    return;
  }
  if (meta->spec->mesh.coordinate()) {
    current_local(*meta).copy_(part);
    wrote_local(*meta);
  }
  answer(op, stack, self);
}

}  // namespace

// (self, dim, index, source or value, ...).
bool write_own_rows(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 1));
  const Tensor index = argument(stack, op, 2).toTensor();
  if (!dim || !Pieces::of(given, *dim) || given.numel() == 0 || index.numel() == 0) return false;
  if (meta_of(given)->spec->has_partial && op.schema().is_mutable()) return false;
  const bool scatters = op.operator_name().name.starts_with("aten::scatter");
  if (index.dim() != (scatters ? given.dim() : 1)) return false;
  const auto source = op.schema().arguments().size() > 3 ? optional_tensor(argument(stack, op, 3)) : std::nullopt;
  const bool has_rows = source && source->dim() == given.dim();
  // Other dims are cut alike in all three.
  const SpecPtr spec = meta_of(given)->spec;
  const Placements whole(spec->placements.size(), Replicate());
  Placements others = grad_placements_for(spec->placements);
  for (Placement& p : others) {
    const int64_t d = sharded_dim(p);
    if (d == *dim) p = Replicate();
    if (d < 0 || d == *dim) continue;
    if (scatters && index.size(d) != given.size(d)) return false;
    if (has_rows && source->size(d) != given.size(d)) return false;
  }
  if (!in_range(index, given.size(*dim))) return not_for_these_data();
  const Tensor self = reduced(given);
  const Pieces pieces = *Pieces::of(self, *dim);
  const Tensor rows = part_of(placed(index, spec->mesh, scatters ? others : whole));
  Stack local = arguments_of(stack, op);
  local[0] = with_spare_row(part_of(self), *dim);
  local[2] = rows.sub(pieces.mine().begin).masked_fill(is_foreign(rows, pieces.mine()), pieces.mine().size());
  if (source) local[3] = part_of(placed(*source, spec->mesh, has_rows ? others : whole));
  if (op.operator_name().name.starts_with("aten::index_reduce")) {
    index_reduce_locally(op, local);
  } else {
    op.callBoxed(local);
  }
  answer_with(op, stack, self, local[0].toTensor().narrow(*dim, 0, pieces.mine().size()));
  return true;
}

// index_put(self, indices, values, accumulate), where dims are sharded that are indexed, by integers.
bool put_own_rows(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  if (meta_of(given) == nullptr || given.numel() == 0) return false;
  const SpecPtr spec = meta_of(given)->spec;
  if (spec->has_partial && op.schema().is_mutable()) return false;
  const auto list = argument(stack, op, 1).toListRef();
  std::vector<Tensor> indices(static_cast<size_t>(given.dim()));
  for (size_t i = 0; i < list.size(); ++i) {
    if (i >= indices.size()) return false;
    if (list[i].isTensor() && list[i].toTensor().defined()) indices[i] = list[i].toTensor();
  }
  bool any = false;
  for (int64_t d = 0; d < given.dim(); ++d) {
    const Tensor& index = indices[static_cast<size_t>(d)];
    if (index.defined() && (index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte)) return false;
    if (!is_sharded(*meta_of(given), d)) continue;
    if (!index.defined() || !Pieces::of(given, d)) return false;
    any = true;
  }
  if (!any) return false;
  for (int64_t d = 0; d < given.dim(); ++d) {
    const Tensor& index = indices[static_cast<size_t>(d)];
    if (index.defined() && is_sharded(*meta_of(given), d) && !in_range(index, given.size(d)))
      return not_for_these_data();
  }
  const Tensor self = reduced(given);
  const Placements whole(spec->placements.size(), Replicate());
  Tensor part = part_of(self);
  Tensor foreign;
  for (int64_t d = 0; d < given.dim(); ++d) {
    Tensor& index = indices[static_cast<size_t>(d)];
    if (!index.defined()) continue;
    index = part_of(placed(index, spec->mesh, whole));
    if (const auto pieces = Pieces::of(self, d)) {
      const Tensor others = is_foreign(index, pieces->mine());
      foreign = foreign.defined() ? foreign.logical_or(others) : others;
    }
  }
  for (int64_t d = 0; d < given.dim(); ++d) {
    const auto pieces = Pieces::of(self, d);
    if (!pieces) continue;
    Tensor& index = indices[static_cast<size_t>(d)];
    part = with_spare_row(part, d);
    index = index.sub(pieces->mine().begin).masked_fill(foreign, pieces->mine().size());
  }
  c10::List<std::optional<Tensor>> local_indices;
  for (size_t i = 0; i < list.size(); ++i) {
    local_indices.push_back(indices[i].defined() ? std::optional(indices[i]) : std::nullopt);
  }
  Stack local = arguments_of(stack, op);
  local[0] = part;
  local[1] = local_indices;
  local[2] = part_of(placed(argument(stack, op, 2).toTensor(), spec->mesh, whole));
  op.callBoxed(local);
  part = local[0].toTensor();
  for (int64_t d = 0; d < given.dim(); ++d) {
    if (const auto pieces = Pieces::of(self, d)) part = part.narrow(d, 0, pieces->mine().size());
  }
  answer_with(op, stack, self, part);
  return true;
}

// index_select(self, dim, index) and gather(self, dim, index, sparse_grad).
bool read_own_rows(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 1));
  const Tensor index = argument(stack, op, 2).toTensor();
  if (!dim || !Pieces::of(given, *dim) || given.numel() == 0 || index.numel() == 0) return false;
  const bool gathers = op.operator_name().name == "aten::gather";
  if (index.dim() != (gathers ? given.dim() : 1)) return false;
  // The sum of the answers moves twice the result, gathering the tensor once the tensor.
  const int64_t rows = index.size(gathers ? *dim : 0);
  if (2 * rows >= given.size(*dim)) return false;
  const SpecPtr spec = meta_of(given)->spec;
  const Placements whole(spec->placements.size(), Replicate());
  Placements others = grad_placements_for(spec->placements);
  Placements placements = others;
  for (size_t axis = 0; axis < others.size(); ++axis) {
    const int64_t d = sharded_dim(others[axis]);
    if (d == *dim) {
      others[axis] = Replicate();
      placements[axis] = Partial();
    } else if (d >= 0 && gathers && index.size(d) != given.size(d)) {
      return false;
    }
  }
  if (!in_range(index, given.size(*dim))) return not_for_these_data();
  const Tensor self = reduced(given);
  const Pieces pieces = *Pieces::of(self, *dim);
  const Tensor named = part_of(placed(index, spec->mesh, gathers ? others : whole));
  Stack local = arguments_of(stack, op);
  local[0] = with_spare_row(part_of(self), *dim);
  local[2] = named.sub(pieces.mine().begin).masked_fill(is_foreign(named, pieces.mine()), pieces.mine().size());
  op.callBoxed(local);
  Dims sizes = gathers ? index.sizes().vec() : given.sizes().vec();
  sizes[static_cast<size_t>(*dim)] = rows;
  answer(op, stack, from_parts(spec->mesh, placements, sizes, local[0].toTensor()));
  return true;
}

}  // namespace sherd::detail
