#include "tensor/rewrites.h"

#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/select.h>
#include <ATen/ops/slice.h>
#include <ATen/ops/sum.h>

#include <string_view>

#include "tensor/rewrite_tools.h"
#include "tensor/two_pass.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr int64_t kMean = 1;  // at::Reduction
constexpr int64_t kSum = 2;

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
  if (!uneven) return false;
  const c10::IValue dtype = argument(stack, op, all ? 1 : 3);
  const auto type = dtype.isNone() ? std::optional<c10::ScalarType>() : std::optional(dtype.toScalarType());
  const bool keep = !all && argument(stack, op, 2).toBool();
  answer(op, stack, at::sum(self, dims, keep, type).div(count));
  return true;
}

// nll_loss_forward(self, target, weight, reduction, ignore_index): the mean over a sharded batch divides the sums.
bool nll_loss_forward(const c10::OperatorHandle& op, Stack& stack) {
  if (argument(stack, op, 3).toInt() != kMean) return false;
  const Tensor self = argument(stack, op, 0).toTensor();
  const Tensor target = argument(stack, op, 1).toTensor();
  const DTensorMeta* meta = meta_of(self);
  const DTensorMeta* target_meta = meta_of(target);
  const bool batch = self.dim() == 2 && ((meta != nullptr && is_sharded(*meta, 0)) ||
                                         (target_meta != nullptr && is_sharded(*target_meta, 0)));
  if (!batch) return false;
  const auto weight = optional_tensor(argument(stack, op, 2));
  const int64_t ignore = argument(stack, op, 4).toInt();
  const auto [sum, count] = at::nll_loss_forward(self, target, weight, kSum, ignore);
  answer(op, stack, sum.div(count));
  stack.emplace_back(count);
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
  c10::List<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t n : sizes) {
    parts.push_back(at::slice(self, *dim, begin, begin + n));
    begin += n;
  }
  answer(op, stack, std::move(parts));
  return true;
}

// The mean of a loss, and its gradient: the sum's, divided by the number of all elements, which a rank does not see.
bool mean_loss(const c10::OperatorHandle& op, Stack& stack) {
  const size_t base = stack.size() - op.schema().arguments().size();
  const std::optional<int> reduction = op.schema().argumentIndexWithName("reduction");
  const std::optional<int> self = op.schema().argumentIndexWithName("self");
  if (!reduction || !self || stack[base + static_cast<size_t>(*reduction)].toInt() != kMean) return false;
  const Tensor whole = stack[base + static_cast<size_t>(*self)].toTensor();
  const Tensor target = stack[base + static_cast<size_t>(*self) + 1].toTensor();
  if (whole.sizes() != target.sizes()) return false;  // broadcast: the count is another
  stack[base + static_cast<size_t>(*reduction)] = kSum;
  op.callBoxed(stack);
  stack.back() = stack.back().toTensor().div(whole.numel());
  return true;
}

struct RewriteRow {
  std::string_view name;
  std::string_view overload;
  Rewrite function;
};

constexpr RewriteRow kRewrites[] = {
    {"aten::mean", "", mean},
    {"aten::mean", "dim", mean},
    {"aten::nll_loss_forward", "", nll_loss_forward},
    {"aten::_softmax", "", two_pass_softmax},
    {"aten::_log_softmax", "", two_pass_softmax},
    {"aten::_softmax_backward_data", "", two_pass_softmax_backward},
    {"aten::_log_softmax_backward_data", "", two_pass_softmax_backward},
    {"aten::linalg_vector_norm", "", two_pass_norm},
    {"aten::var", "correction", two_pass_variance},
    {"aten::std", "correction", two_pass_variance},
    {"aten::var_mean", "correction", two_pass_variance},
    {"aten::std_mean", "correction", two_pass_variance},
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

}  // namespace

Rewrite rewrite_for(const std::string& name, const std::string& overload) {
  for (const RewriteRow& row : kRewrites) {
    if (row.name == name && row.overload == overload) return row.function;
  }
  return nullptr;
}

}  // namespace sherd::detail
