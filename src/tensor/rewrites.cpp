#include "tensor/rewrites.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg__powsum.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/select.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/slice.h>
#include <ATen/ops/sum.h>

#include <string_view>
#include <utility>

#include "tensor/batch_norm.h"
#include "tensor/candidates.h"
#include "tensor/draw.h"
#include "tensor/found_rows.h"
#include "tensor/halo.h"
#include "tensor/nll_loss.h"
#include "tensor/own_rows.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"
#include "tensor/row_moves.h"
#include "tensor/sample_sort.h"
#include "tensor/scan.h"
#include "tensor/two_pass.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Of what is summed up in half precision: the sum of a few thousand numbers is beyond its largest. Made in float, as
// torch's own kernels make it.
Tensor divided_sum(const Tensor& tensor, const Dims& dims, bool keep, c10::ScalarType type, int64_t count) {
  const c10::ScalarType wide = at::toOpMathType(type);
  const Tensor result = at::sum(tensor, dims, keep, wide).div(count);
  return wide == type ? result : result.to(type);
}

bool is_partial_dtensor(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr && meta->spec->has_partial;
}

// An average over shards of different sizes is not the average of their averages.
bool mean(const c10::OperatorHandle& op, Stack& stack) {
  const bool all =
      op.operator_name().overload_name.empty();  // mean(self, dtype), else mean.dim(self, dim, keepdim, dtype)
  const Tensor self = argument(stack, op, 0).toTensor();
  const DTensorMeta* meta = meta_of(self);
  if (meta == nullptr) return false;
  std::vector<int64_t> dims;
  if (!all && argument(stack, op, 1).isIntList()) dims = argument(stack, op, 1).toIntVector();
  if (dims.empty()) {
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  int64_t count = 1;
  bool uneven = false;
  for (int64_t& d : dims) {
    if (d < 0) d += self.dim();
    count *= self.dim() == 0 ? 1 : self.size(d);
    int64_t parts = 1;
    for (int64_t axis = 0; axis < meta->spec->mesh.ndim(); ++axis) {
      const Placement& p = meta->spec->placements[static_cast<size_t>(axis)];
      if (sharded_dim(p) != d) continue;
      parts *= meta->spec->mesh.size(axis);
      uneven |= !std::holds_alternative<Shard>(p);
    }
    uneven |= self.dim() > 0 && self.size(d) % parts != 0;
  }
  const c10::IValue& dtype = argument(stack, op, all ? 1 : 3);
  const c10::ScalarType type = dtype.isNone() ? self.scalar_type() : dtype.toScalarType();
  if (!uneven || c10::isIntegralType(type, true)) return false;  // of integers: torch says what is wrong
  const bool keep = !all && argument(stack, op, 2).toBool();
  answer(op, stack, divided_sum(self, dims, keep, type, count));
  return true;
}

// _reshape_alias(self, size, stride): a view whose strides were computed for the whole. Parts have their own.
bool reshape_alias(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  answer(op, stack, self.view(argument(stack, op, 1).toIntVector()));
  return true;
}

// select(self, dim, index) of a sharded dim: the row is cut out first, so that it alone is moved.
bool select(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(self, argument(stack, op, 1));
  if (!dim || self.size(*dim) < 2) return false;
  const int64_t size = self.size(*dim);
  int64_t row = argument(stack, op, 2).toInt();
  if (row < -size || row >= size) return false;  // torch says what is wrong
  if (row < 0) row += size;
  answer(op, stack, at::select(at::slice(self, *dim, row, row + 1), *dim, 0));
  return true;
}

// split(self, rows, dim) and split_with_sizes(self, sizes, dim) of a sharded dim: slices, which move nothing.
bool split(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(self, argument(stack, op, 2));
  if (!dim) return false;
  const c10::IValue& how = argument(stack, op, 1);
  const int64_t size = self.size(*dim);
  std::vector<int64_t> sizes;
  int64_t total = 0;
  if (how.isIntList()) {
    sizes = how.toIntVector();
    for (const int64_t n : sizes) total += n;
  } else {
    if (how.toInt() <= 0) return false;
    for (; total < size; total += sizes.back()) sizes.push_back(std::min(how.toInt(), size - total));
  }
  if (total != size) return false;
  if (sizes.empty() && !how.isIntList()) sizes.push_back(0);  // of no rows torch makes one part, too
  c10::List<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t n : sizes) {
    parts.push_back(at::slice(self, *dim, begin, begin + n));
    begin += n;
  }
  answer(op, stack, std::move(parts));
  return true;
}

// Answers a loss that asks for a mean over `count` elements or rows, or its gradient: the sum's, divided by a number
// that a rank does not see.
void mean_of_losses(const c10::OperatorHandle& op, Stack& stack, const Tensor& self, int64_t count) {
  const size_t base = stack.size() - op.schema().arguments().size();
  c10::IValue& reduction = stack[base + static_cast<size_t>(*op.schema().argumentIndexWithName("reduction"))];
  if (op.schema().arguments().front().name() == "grad_output") {
    // One number, divided before it is multiplied with what may be too large for half precision.
    stack[base] = stack[base].toTensor().div(count);
    reduction = int64_t{at::Reduction::Sum};
    op.callBoxed(stack);
    return;
  }
  const bool narrow = at::toOpMathType(self.scalar_type()) != self.scalar_type();
  reduction = int64_t{narrow ? at::Reduction::None : at::Reduction::Sum};
  op.callBoxed(stack);
  c10::IValue& result = stack[stack.size() - op.schema().returns().size()];
  const Tensor loss = result.toTensor();
  result = narrow ? divided_sum(loss, {}, false, loss.scalar_type(), count) : loss.div(count);
}

bool asks_for_mean(const c10::OperatorHandle& op, const Stack& stack) {
  const std::optional<int> reduction = op.schema().argumentIndexWithName("reduction");
  return reduction && argument(stack, op, static_cast<size_t>(*reduction)).toInt() == at::Reduction::Mean;
}

// Over all elements.
bool mean_loss(const c10::OperatorHandle& op, Stack& stack) {
  const std::optional<int> self = op.schema().argumentIndexWithName("self");
  if (!self || !asks_for_mean(op, stack)) return false;
  const Tensor whole = argument(stack, op, static_cast<size_t>(*self)).toTensor();
  const Tensor target = argument(stack, op, static_cast<size_t>(*self) + 1).toTensor();
  if (whole.sizes() != target.sizes()) return false;  // broadcast: the count is another
  mean_of_losses(op, stack, whole, whole.numel());
  return true;
}

// Over the rows of a matrix of margins.
bool mean_margin_loss(const c10::OperatorHandle& op, Stack& stack) {
  const auto self = static_cast<size_t>(*op.schema().argumentIndexWithName("self"));
  const Tensor whole = argument(stack, op, self).toTensor();
  if (!asks_for_mean(op, stack) || whole.dim() != 2) return false;
  mean_of_losses(op, stack, whole, whole.size(0));
  return true;
}

// equal(self, other): one answer for all ranks.
bool equal(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const Tensor other = argument(stack, op, 1).toTensor();
  const bool same = self.sizes() == other.sizes() && at::eq(self, other).all().item<bool>();
  answer(op, stack, same);
  return true;
}

// log_sigmoid_forward(self) -> output, buffer: what the CPU keeps for the backward and a GPU does not. Both compute it
// here, and round once.
bool log_sigmoid(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const c10::ScalarType type = self.scalar_type();
  if (!c10::isFloatingType(type)) return false;  // torch says what is wrong
  const Tensor x = widened(is_partial_dtensor(self) ? reduced(self) : self);
  const Tensor buffer = at::exp(-at::abs(x));
  answer(op, stack, (at::clamp_max(x, 0) - at::log1p(buffer)).to(type));
  stack.emplace_back(buffer.to(type));
  return true;
}

// log_sigmoid_backward(grad_output, self, buffer).
bool log_sigmoid_backward(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor grad = argument(stack, op, 0).toTensor();
  const Tensor self = argument(stack, op, 1).toTensor();
  const c10::ScalarType type = grad.scalar_type();
  if (!c10::isFloatingType(type) || self.scalar_type() != type) return false;
  answer(op, stack, (widened(grad) * at::sigmoid(-widened(self))).to(type));
  return true;
}

// _conj(self) and _neg_view(self): torch only marks the tensor and computes later. The mark would stand on the parts,
// where those who look at the whole do not see it. So it is a copy, which remembers the marked part that it was made
// of: what is written to either reaches the other.
bool conjugate_or_negate(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const bool conjugates = op.operator_name().name == "aten::_conj";
  const auto copied = [&](const Tensor& tensor) { return conjugates ? at::conj_physical(tensor) : at::neg(tensor); };
  Tensor result = copied(self);
  DTensorMeta* meta = meta_of(self);
  if (meta != nullptr && !meta->spec->boxes) {
    const Spec& spec = *meta->spec;
    Tensor local = current_local(*meta);
    ViewOriginPtr above = meta->origin;
    if (meta_of(result)->spec->placements != spec.placements) {  // parts of a maximum are no parts of its negative
      const Tensor whole = reduced(self);
      const Tensor there = meta_of(whole)->local;
      const Placements& to = meta_of(whole)->spec->placements;
      above = c10::make_intrusive<ViewOrigin>(local, there, above, spec.mesh, spec.sizes, spec.placements, to);
      local = there;
      result = copied(whole);
    }
    const Tensor marked = conjugates ? at::_conj(local) : at::_neg_view(local);
    share_version(marked, local);
    DTensorMeta* copy = meta_of(result);
    const Placements& now = copy->spec->placements;
    copy->origin = c10::make_intrusive<ViewOrigin>(marked, copy->local, above, spec.mesh, spec.sizes, now, now);
    copy->is_cut = meta->is_cut;
  }
  answer(op, stack, result);
  return true;
}

// pixel_unshuffle(self, r): views of the same elements. torch's own kernel forgets to change the shape of a tensor
// without elements, which a part may be.
bool pixel_unshuffle(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const int64_t r = argument(stack, op, 1).toInt();
  const int64_t n = self.dim();
  if (n < 3 || r < 1 || self.size(-1) % r != 0 || self.size(-2) % r != 0) return false;
  Dims split(self.sizes().begin(), self.sizes().end() - 2);
  Dims order;
  for (int64_t d = 0; d < n - 2; ++d) order.push_back(d);
  Dims merged(split.begin(), split.end() - 1);
  merged.insert(merged.end(), {self.size(-3) * r * r, self.size(-2) / r, self.size(-1) / r});
  split.insert(split.end(), {self.size(-2) / r, r, self.size(-1) / r, r});
  order.insert(order.end(), {n - 1, n + 1, n - 2, n});
  answer(op, stack, self.reshape(split).permute(order).reshape(merged));
  return true;
}

// _foreach_norm(self, ord, dtype), _foreach_powsum, _foreach_max(self) and _foreach_mm(self, mat2): not element-wise,
// so each tensor of the lists takes the rule of the operator on one.
bool each_alone(const c10::OperatorHandle& op, Stack& stack) {
  const std::string& name = op.operator_name().name;
  const std::vector<Tensor> tensors = argument(stack, op, 0).toTensorVector();
  std::vector<Tensor> others;
  if (name == "aten::_foreach_mm") others = argument(stack, op, 1).toTensorVector();
  if (name == "aten::_foreach_mm" && others.size() != tensors.size()) return false;  // torch says what is wrong
  c10::List<Tensor> results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (name == "aten::_foreach_max") {
      results.push_back(at::max(tensors[i]));
    } else if (name == "aten::_foreach_mm") {
      results.push_back(at::mm(tensors[i], others[i]));
    } else {
      const at::Scalar order = argument(stack, op, 1).toScalar();
      const c10::IValue& dtype = argument(stack, op, 2);
      const auto type = dtype.isNone() ? std::optional<c10::ScalarType>() : std::optional(dtype.toScalarType());
      results.push_back(name == "aten::_foreach_norm"
                            ? at::linalg_vector_norm(tensors[i], order, at::OptionalIntArrayRef(), false, type)
                            : at::linalg__powsum(tensors[i], order, at::OptionalIntArrayRef(), false, type));
    }
  }
  answer(op, stack, std::move(results));
  return true;
}

// slice_scatter(self, src, dim, start, end, step), select_scatter(self, src, dim, index) and diagonal_scatter(self,
// src, offset, dim1, dim2): a copy, of which a view is written.
bool put_in_view(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (meta_of(self) == nullptr) return false;
  const Tensor copy = self.clone();
  const auto integer = [&](size_t i) { return argument(stack, op, i).toInt(); };
  const auto optional = [&](size_t i) {
    return argument(stack, op, i).isNone() ? std::optional<int64_t>() : std::optional(integer(i));
  };
  const std::string& name = op.operator_name().name;
  const Tensor view = name == "aten::slice_scatter" ? at::slice(copy, integer(2), optional(3), optional(4), integer(5))
                      : name == "aten::select_scatter" ? at::select(copy, integer(2), integer(3))
                                                       : at::diagonal(copy, integer(2), integer(3), integer(4));
  view.copy_(argument(stack, op, 1).toTensor());
  answer(op, stack, copy);
  return true;
}

// Calls the operator with a Partial argument reduced.
void call_reduced(const c10::OperatorHandle& op, Stack& stack, size_t at) {
  c10::IValue& value = stack[stack.size() - op.schema().arguments().size() + at];
  value = reduced(value.toTensor());
  op.callBoxed(stack);
}

// x.to(torch::kInt), and sums that are made in another type (dtype=, that of out=, or because they are of booleans).
bool reduce_before_converting(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (!is_partial_dtensor(self)) return false;
  const c10::ScalarType from = self.scalar_type();
  const auto place = op.schema().argumentIndexWithName("dtype");
  const c10::IValue asked = place ? argument(stack, op, static_cast<size_t>(*place)) : c10::IValue();
  const bool adds = op.operator_name().name != "aten::_to_copy";
  const auto out = op.schema().argumentIndexWithName("out");
  const c10::ScalarType to = !asked.isNone() ? asked.toScalarType()
                             : out           ? argument(stack, op, static_cast<size_t>(*out)).toTensor().scalar_type()
                             : adds && c10::isIntegralType(from, true) ? c10::kLong
                                                                       : from;
  if (!is_reduced_before(from, to)) return false;
  call_reduced(op, stack, 0);
  return true;
}

// copy_(self, src, non_blocking).
bool reduce_before_copying(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor source = argument(stack, op, 1).toTensor();
  if (!is_partial_dtensor(source)) return false;
  if (!is_reduced_before(source.scalar_type(), argument(stack, op, 0).toTensor().scalar_type())) return false;
  call_reduced(op, stack, 1);
  return true;
}

// Means of integers.
bool reduce_before_rounding(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (!is_partial_dtensor(self) || !c10::isIntegralType(self.scalar_type(), true)) return false;
  call_reduced(op, stack, 0);
  return true;
}

bool sum_so_far(const c10::OperatorHandle& op, Stack& stack) {
  return reduce_before_converting(op, stack) || scan(op, stack);
}

bool average_pool(const c10::OperatorHandle& op, Stack& stack) {
  return reduce_before_rounding(op, stack) || with_halo(op, stack);
}

struct RewriteRow {
  std::string_view name;
  std::string_view overload;
  Rewrite function;
};

constexpr RewriteRow kRewrites[] = {
    {"aten::mean", "", mean},
    {"aten::mean", "dim", mean},
    {"aten::nll_loss_forward", "", nll_loss_of_parts},
    {"aten::nll_loss2d_forward", "", nll_loss_of_parts},
    {"aten::nll_loss_backward", "", nll_loss_of_parts_backward},
    {"aten::nll_loss2d_backward", "", nll_loss_of_parts_backward},
    {"aten::multi_margin_loss", "", mean_margin_loss},
    {"aten::multi_margin_loss_backward", "", mean_margin_loss},
    {"aten::multilabel_margin_loss_forward", "", mean_margin_loss},
    {"aten::multilabel_margin_loss_backward", "", mean_margin_loss},
    {"aten::equal", "", equal},
    {"aten::log_sigmoid_forward", "", log_sigmoid},
    {"aten::log_sigmoid_backward", "", log_sigmoid_backward},
    {"aten::_conj", "", conjugate_or_negate},
    {"aten::_to_copy", "", reduce_before_converting},
    {"aten::_to_copy", "out", reduce_before_converting},
    {"aten::sum", "", reduce_before_converting},
    {"aten::sum", "dim_IntList", reduce_before_converting},
    {"aten::sum", "IntList_out", reduce_before_converting},
    {"aten::sum", "out", reduce_before_converting},
    {"aten::copy_", "", reduce_before_copying},
    {"aten::copy", "", reduce_before_copying},
    {"aten::copy", "out", reduce_before_copying},
    {"aten::_neg_view", "", conjugate_or_negate},
    {"aten::pixel_unshuffle", "", pixel_unshuffle},
    {"aten::slice_scatter", "", put_in_view},
    {"aten::select_scatter", "", put_in_view},
    {"aten::diagonal_scatter", "", put_in_view},
    {"aten::_softmax", "", two_pass_softmax},
    {"aten::_log_softmax", "", two_pass_softmax},
    {"aten::_softmax_backward_data", "", two_pass_softmax_backward},
    {"aten::_log_softmax_backward_data", "", two_pass_softmax_backward},
    {"aten::linalg_vector_norm", "", two_pass_norm},
    {"aten::var", "correction", two_pass_variance},
    {"aten::std", "correction", two_pass_variance},
    {"aten::var_mean", "correction", two_pass_variance},
    {"aten::std_mean", "correction", two_pass_variance},
    {"aten::logsumexp", "", two_pass_logsumexp},
    {"aten::cumsum", "", sum_so_far},
    {"aten::cumsum", "out", reduce_before_converting},
    {"aten::cumprod", "", scan},
    {"aten::logcumsumexp", "", scan},
    {"aten::cummax", "", scan_extremes},
    {"aten::cummin", "", scan_extremes},
    {"aten::max", "dim", pick_extreme},
    {"aten::min", "dim", pick_extreme},
    {"aten::argmax", "", pick_place},
    {"aten::argmin", "", pick_place},
    {"aten::topk", "", pick_several},
    {"aten::kthvalue", "", pick_kth},
    {"aten::aminmax", "", pick_both},
    {"aten::sort", "", sample_sort},
    {"aten::sort", "stable", sample_sort},
    {"aten::flip", "", flip_rows},
    {"aten::roll", "", roll_rows},
    {"aten::constant_pad_nd", "", pad_rows},
    {"aten::cat", "", cat_rows},
    {"aten::convolution", "", with_halo},
    {"aten::convolution_backward", "", halo_backward},
    {"aten::avg_pool2d", "", average_pool},
    {"aten::avg_pool2d_backward", "", halo_backward},
    {"aten::avg_pool3d", "", average_pool},
    {"aten::avg_pool3d_backward", "", halo_backward},
    {"aten::max_pool2d_with_indices", "", with_halo},
    {"aten::max_pool2d_with_indices_backward", "", halo_backward},
    {"aten::max_pool3d_with_indices", "", with_halo},
    {"aten::max_pool3d_with_indices_backward", "", halo_backward},
    {"aten::native_batch_norm", "", batch_norm_over_ranks},
    {"aten::_native_batch_norm_legit", "", batch_norm_over_ranks},
    {"aten::_native_batch_norm_legit", "no_stats", batch_norm_over_ranks},
    {"aten::_batch_norm_with_update", "", batch_norm_over_ranks},
    {"aten::native_batch_norm_backward", "", batch_norm_backward_over_ranks},
    {"aten::cudnn_batch_norm", "", batch_norm_without_cudnn},
    {"aten::cudnn_batch_norm_backward", "", batch_norm_backward_without_cudnn},
    {"aten::nonzero", "", find_nonzero},
    {"aten::masked_select", "", select_masked},
    {"aten::bincount", "", count_numbers},
    {"aten::histc", "", count_in_bins},
    {"aten::_unique2", "", find_unique},
    {"aten::index_select", "", read_own_rows},
    {"aten::gather", "", read_own_rows},
    {"aten::scatter", "src", write_own_rows},
    {"aten::scatter_", "src", write_own_rows},
    {"aten::scatter", "value", write_own_rows},
    {"aten::scatter_", "value", write_own_rows},
    {"aten::scatter", "reduce", write_own_rows},
    {"aten::scatter_", "reduce", write_own_rows},
    {"aten::scatter", "value_reduce", write_own_rows},
    {"aten::scatter_", "value_reduce", write_own_rows},
    {"aten::scatter_add", "", write_own_rows},
    {"aten::scatter_add_", "", write_own_rows},
    {"aten::scatter_reduce", "two", write_own_rows},
    {"aten::scatter_reduce_", "two", write_own_rows},
    {"aten::index_add", "", write_own_rows},
    {"aten::index_add_", "", write_own_rows},
    {"aten::index_copy", "", write_own_rows},
    {"aten::index_copy_", "", write_own_rows},
    {"aten::index_fill", "int_Scalar", write_own_rows},
    {"aten::index_fill_", "int_Scalar", write_own_rows},
    {"aten::index_fill", "int_Tensor", write_own_rows},
    {"aten::index_fill_", "int_Tensor", write_own_rows},
    {"aten::index_reduce", "", write_own_rows},
    {"aten::index_reduce_", "", write_own_rows},
    {"aten::index_put", "", put_own_rows},
    {"aten::index_put_", "", put_own_rows},
    {"aten::_index_put_impl_", "", put_own_rows},
    {"aten::uniform_", "", draw_in_place},
    {"aten::uniform", "", draw_anew},
    {"aten::uniform", "out", draw_into_out},
    {"aten::log_normal_", "", draw_in_place},
    {"aten::log_normal", "", draw_anew},
    {"aten::log_normal", "out", draw_into_out},
    {"aten::exponential_", "", draw_in_place},
    {"aten::exponential", "", draw_anew},
    {"aten::exponential", "out", draw_into_out},
    {"aten::geometric_", "", draw_in_place},
    {"aten::geometric", "", draw_anew},
    {"aten::geometric", "out", draw_into_out},
    {"aten::cauchy_", "", draw_in_place},
    {"aten::cauchy", "", draw_anew},
    {"aten::cauchy", "out", draw_into_out},
    {"aten::normal_", "", draw_in_place},
    {"aten::normal_functional", "", draw_anew},
    {"aten::normal", "out", draw_into_out},
    {"aten::random_", "", draw_in_place},
    {"aten::random", "", draw_anew},
    {"aten::random", "out", draw_into_out},
    {"aten::random_", "from", draw_in_place},
    {"aten::random", "from", draw_anew},
    {"aten::random", "from_out", draw_into_out},
    {"aten::random_", "to", draw_in_place},
    {"aten::random", "to", draw_anew},
    {"aten::random", "to_out", draw_into_out},
    {"aten::bernoulli_", "float", draw_in_place},
    {"aten::bernoulli", "p", draw_anew},
    {"aten::bernoulli", "", draw_by_element},
    {"aten::bernoulli", "Tensor", draw_by_element},
    {"aten::bernoulli_", "Tensor", draw_by_element},
    {"aten::bernoulli", "out", draw_into_out},
    {"aten::bernoulli", "Tensor_out", draw_into_out},
    {"aten::bernoulli", "float_out", draw_into_out},
    {"aten::poisson", "", draw_by_element},
    {"aten::poisson", "out", draw_into_out},
    {"aten::binomial", "", draw_by_element},
    {"aten::binomial", "out", draw_into_out},
    {"aten::multinomial", "", draw_multinomial},
    {"aten::multinomial", "out", draw_into_out},
    {"aten::native_dropout", "", draw_dropout},
    {"aten::native_dropout", "out", draw_into_out},
    {"aten::_fused_dropout", "", draw_dropout},
    {"aten::_fused_dropout", "out", draw_into_out},
    {"aten::rrelu_with_noise", "", draw_rrelu},
    {"aten::rrelu_with_noise_", "", draw_rrelu},
    {"aten::rrelu_with_noise_functional", "", draw_rrelu},
    {"aten::normal", "Tensor_float", draw_normal_around},
    {"aten::normal", "Tensor_float_out", draw_into_out},
    {"aten::normal", "float_Tensor", draw_normal_around},
    {"aten::normal", "float_Tensor_out", draw_into_out},
    {"aten::normal", "Tensor_Tensor", draw_normal_around},
    {"aten::normal", "Tensor_Tensor_out", draw_into_out},
    {"aten::rand_like", "", draw_like},
    {"aten::rand_like", "out", draw_into_out},
    {"aten::rand_like", "generator", draw_like},
    {"aten::rand_like", "generator_out", draw_into_out},
    {"aten::randn_like", "", draw_like},
    {"aten::randn_like", "out", draw_into_out},
    {"aten::randn_like", "generator", draw_like},
    {"aten::randn_like", "generator_out", draw_into_out},
    {"aten::randint_like", "", draw_like},
    {"aten::randint_like", "generator", draw_like},
    {"aten::randint_like", "Tensor", draw_like},
    {"aten::randint_like", "Tensor_generator", draw_like},
    {"aten::randint_like", "low_dtype", draw_like},
    {"aten::randint_like", "low_generator_dtype", draw_like},
    {"aten::randperm", "generator_out", draw_permutation},
    {"aten::_foreach_norm", "Scalar", each_alone},
    {"aten::_foreach_powsum", "Scalar", each_alone},
    {"aten::_foreach_max", "", each_alone},
    {"aten::_foreach_mm", "", each_alone},
    {"aten::_reshape_alias", "", reshape_alias},
    {"aten::select", "int", select},
    {"aten::split", "Tensor", split},
    {"aten::split_with_sizes", "", split},
    {"aten::unsafe_split", "Tensor", split},
    {"aten::unsafe_split_with_sizes", "", split},
    {"aten::mse_loss", "", mean_loss},
    {"aten::mse_loss_backward", "", mean_loss},
    {"aten::smooth_l1_loss", "", mean_loss},
    {"aten::smooth_l1_loss_backward", "", mean_loss},
    {"aten::huber_loss", "", mean_loss},
    {"aten::huber_loss_backward", "", mean_loss},
    {"aten::soft_margin_loss", "", mean_loss},
    {"aten::soft_margin_loss_backward", "", mean_loss},
    {"aten::binary_cross_entropy", "", mean_loss},
    {"aten::binary_cross_entropy_backward", "", mean_loss},
};

thread_local const OpInfo* rewritten_now = nullptr;
thread_local bool left_for_its_data = false;

}  // namespace

bool is_reduced_before(c10::ScalarType from, c10::ScalarType to) {
  if (from == to) return false;
  if (from == c10::kBool || to == c10::kBool) return true;
  if (!c10::isIntegralType(from, false)) return c10::isIntegralType(to, false);
  constexpr size_t kLargest = sizeof(int64_t);  // sums that are beyond it are nobody's
  if (c10::elementSize(from) >= kLargest) return false;
  return !c10::isIntegralType(to, false) || c10::elementSize(to) > c10::elementSize(from);
}

Rewriting::Rewriting(const OpInfo& info) : outer_(std::exchange(rewritten_now, &info)) {}
Rewriting::~Rewriting() { rewritten_now = outer_; }

bool not_for_these_data() {
  left_for_its_data = true;
  return false;
}
bool was_not_for_these_data() { return std::exchange(left_for_its_data, false); }

std::string operation_under_way() { return rewritten_now != nullptr ? rewritten_now->short_name() : "rewrite"; }

Rewrite rewrite_for(const std::string& name, const std::string& overload) {
  for (const RewriteRow& row : kRewrites) {
    if (row.name == name && row.overload == overload) return row.function;
  }
  return nullptr;
}

}  // namespace sherd::detail
