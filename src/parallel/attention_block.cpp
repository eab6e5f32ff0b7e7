#include "parallel/attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <limits>

namespace sherd::detail {
namespace {

using at::Tensor;

constexpr double kNever = -std::numeric_limits<double>::infinity();

// torch's fused kernel for CPUs takes heads of one width, and answers with the logsumexp that blocks are joined by.
bool is_fused(const Tensor& query, const Tensor& key, const Tensor& value, const BlockForm& form) {
  const bool known = query.scalar_type() == at::kDouble || query.scalar_type() == at::kFloat ||
                     query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  return query.device().is_cpu() && known && key.size(3) == value.size(3) && !form.mask.defined() &&
         (!form.triangle || query.size(2) == key.size(2));
}

// One head of the key for each of the query's.
Tensor for_each_head(const Tensor& tensor, int64_t heads) {
  return tensor.size(1) == heads ? tensor : tensor.repeat_interleave(heads / tensor.size(1), 1);
}
Tensor sum_of_heads(const Tensor& grad, int64_t heads) {
  if (grad.size(1) == heads) return grad;
  return grad.unflatten(1, {heads, grad.size(1) / heads}).sum(2);
}

Tensor wide(const Tensor& tensor) { return tensor.to(sum_type(tensor.scalar_type())); }

Tensor scores(const Tensor& query, const Tensor& key, const BlockForm& form) {
  Tensor result = at::matmul(wide(query), wide(key).transpose(-2, -1)).mul_(form.scale);
  if (form.triangle) {
    const Tensor unseen = at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).triu_(1);
    result.masked_fill_(unseen, kNever);
  }
  if (!form.mask.defined()) return result;
  return form.mask.scalar_type() == at::kBool ? result.masked_fill_(form.mask.logical_not(), kNever)
                                              : result.add_(form.mask);
}

// What scores are measured by. A query that sees no key has -inf there, and weights exp(-inf - 0): none.
Tensor measure(const Tensor& logsumexp) { return logsumexp.masked_fill(logsumexp == kNever, 0); }

Tensor weights_of(const Tensor& scores, const Tensor& logsumexp) {
  return (scores - measure(logsumexp).unsqueeze(-1)).exp_();
}

}  // namespace

c10::ScalarType sum_type(c10::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

AttentionBlock attend(const Tensor& query, const Tensor& key, const Tensor& value, const BlockForm& form) {
  const Tensor k = for_each_head(key, query.size(1));
  const Tensor v = for_each_head(value, query.size(1));
  if (is_fused(query, k, v, form)) {
    auto [output, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(query, k, v, 0, form.triangle, {}, form.scale);
    return {output, logsumexp};
  }
  const Tensor found = scores(query, k, form);
  const Tensor logsumexp = at::logsumexp(found, {-1});
  return {at::matmul(weights_of(found, logsumexp), wide(v)), logsumexp};
}

AttentionGrads attend_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                               const AttentionBlock& whole, const BlockForm& form) {
  const Tensor k = for_each_head(key, query.size(1));
  const Tensor v = for_each_head(value, query.size(1));
  const auto result = [&](const Tensor& dq, const Tensor& dk, const Tensor& dv) {
    return AttentionGrads{dq, sum_of_heads(dk, key.size(1)), sum_of_heads(dv, value.size(1))};
  };
  if (is_fused(query, k, v, form)) {
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, k, v, whole.output.to(query.scalar_type()), whole.logsumexp, 0, form.triangle, {}, form.scale);
    return result(dq, dk, dv);
  }
  const Tensor weights = weights_of(scores(query, k, form), whole.logsumexp);
  const Tensor g = wide(grad);
  const Tensor own = (g * whole.output).sum(-1, true);  // what the softmax takes back from each row
  const Tensor slope = (at::matmul(g, wide(v).transpose(-2, -1)) - own).mul_(weights).mul_(form.scale);
  return result(at::matmul(slope, wide(k)), at::matmul(slope.transpose(-2, -1), wide(query)),
                at::matmul(weights.transpose(-2, -1), g));
}

void join_block(const AttentionBlock& so_far, const AttentionBlock& block) {
  const Tensor both = at::logaddexp(so_far.logsumexp, block.logsumexp);
  const auto share = [&](const Tensor& logsumexp) { return weights_of(logsumexp.unsqueeze(-1), both); };
  so_far.output.mul_(share(so_far.logsumexp)).add_(block.output * share(block.logsumexp));
  so_far.logsumexp.copy_(both);
}

}  // namespace sherd::detail
