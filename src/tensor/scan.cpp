#include "tensor/scan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The operator on this rank's rows.
Stack on_part(const c10::OperatorHandle& op, const Stack& stack, const Tensor& part) {
  Stack local = arguments_of(stack, op);
  local[0] = part;
  op.callBoxed(local);
  return local;
}

// The last row of every piece that is not empty and comes before this rank's, one after the other.
Tensor rows_before(const Pieces& pieces, const Tensor& scanned) {
  const int64_t dim = pieces.dim();
  const int64_t rows = scanned.size(dim);
  Dims one = scanned.sizes().vec();
  one[static_cast<size_t>(dim)] = 1;
  const Tensor last = rows > 0 ? scanned.narrow(dim, rows - 1, 1) : at::zeros(one, scanned.options());
  const Tensor all = pieces.gather(last);
  std::vector<Tensor> kept;
  for (size_t piece = 0; piece < pieces.here(); ++piece) {
    if (pieces[piece].size() > 0) kept.push_back(all.narrow(dim, static_cast<int64_t>(piece), 1));
  }
  return kept.empty() ? all.narrow(dim, 0, 0) : at::cat(kept, dim);
}

}  // namespace

// cumsum(self, dim, dtype), cumprod(self, dim, dtype), logcumsumexp(self, dim).
bool scan(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 1));
  if (!dim || (given.is_complex() && op.operator_name().name == "aten::logcumsumexp")) return false;
  if (!Pieces::of(given, *dim)) return false;
  const Tensor self = reduced(given);
  const Pieces pieces = *Pieces::of(self, *dim);
  const Tensor scanned = on_part(op, stack, part_of(self))[0].toTensor();
  const Tensor before = rows_before(pieces, scanned);
  Tensor result = scanned;
  if (before.size(*dim) > 0 && scanned.numel() > 0) {
    const std::string& name = op.operator_name().name;
    if (name == "aten::cumsum") {
      result = scanned + at::sum(before, *dim, true, scanned.scalar_type());
    } else if (name == "aten::cumprod") {
      result = scanned * at::prod(before, *dim, true, scanned.scalar_type());
    } else {
      result = at::logaddexp(scanned, at::logsumexp(before, *dim, true));
    }
  }
  const DTensorMeta* meta = meta_of(self);
  answer(op, stack, from_parts(meta->spec->mesh, meta->spec->placements, meta->spec->sizes, result));
  return true;
}

// cummax(self, dim) and cummin(self, dim) -> values, indices. Of equal values the last counts, and NaN above all.
bool scan_extremes(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(given, argument(stack, op, 1));
  if (!dim || !Pieces::of(given, *dim)) return false;
  const Tensor self = reduced(given);
  const Pieces pieces = *Pieces::of(self, *dim);
  const Stack local = on_part(op, stack, part_of(self));
  Tensor values = local[0].toTensor();
  Tensor indices = local[1].toTensor() + pieces.mine().begin;
  const Tensor values_before = rows_before(pieces, values);
  const Tensor indices_before = rows_before(pieces, indices);
  if (values_before.size(*dim) > 0 && values.numel() > 0) {
    Stack best = on_part(op, stack, values_before);
    const int64_t last = values_before.size(*dim) - 1;
    const Tensor value = best[0].toTensor().narrow(*dim, last, 1);
    const Tensor index = indices_before.gather(*dim, best[1].toTensor().narrow(*dim, last, 1));
    const bool max = op.operator_name().name == "aten::cummax";
    Tensor own = max ? at::ge(values, value) : at::le(values, value);
    if (values.is_floating_point()) own = own.logical_and(at::isnan(value).logical_not()).logical_or(at::isnan(values));
    values = at::where(own, values, value);
    indices = at::where(own, indices, index);
  }
  const DTensorMeta* meta = meta_of(self);
  answer(op, stack, from_parts(meta->spec->mesh, meta->spec->placements, meta->spec->sizes, values));
  stack.emplace_back(from_parts(meta->spec->mesh, meta->spec->placements, meta->spec->sizes, indices));
  return true;
}

}  // namespace sherd::detail
