#include "tensor/rewrites.h"

#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/sum.h>

#include <string_view>

#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr int64_t kMean = 1;  // at::Reduction
constexpr int64_t kSum = 2;

const c10::IValue& argument(const Stack& stack, const c10::OperatorHandle& op, size_t i) {
  return stack[stack.size() - op.schema().arguments().size() + i];
}

std::optional<Tensor> optional_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? std::optional(value.toTensor()) : std::nullopt;
}

bool is_sharded(const DTensorMeta& meta, int64_t dim) {
  for (size_t axis = 0; axis < meta.spec->placements.size(); ++axis) {
    if (sharded_dim(meta.spec->placements[axis]) == dim && meta.spec->mesh.size(static_cast<int64_t>(axis)) > 1) {
      return true;
    }
  }
  return false;
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
  if (!uneven) return false;
  const c10::IValue dtype = argument(stack, op, all ? 1 : 3);
  const auto type = dtype.isNone() ? std::optional<c10::ScalarType>() : std::optional(dtype.toScalarType());
  const bool keep = !all && argument(stack, op, 2).toBool();
  const Tensor result = at::sum(self, dims, keep, type).div(count);
  torch::jit::drop(stack, op.schema().arguments().size());
  stack.emplace_back(result);
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
  torch::jit::drop(stack, op.schema().arguments().size());
  stack.emplace_back(sum.div(count));
  stack.emplace_back(count);
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
};

}  // namespace

Rewrite rewrite_for(const std::string& name, const std::string& overload) {
  for (const RewriteRow& row : kRewrites) {
    if (row.name == name && row.overload == overload) return row.function;
  }
  return nullptr;
}

}  // namespace sherd::detail
