#include "tensor/two_pass.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/squeeze.h>
#include <ATen/ops/sum.h>

#include <cmath>

#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

bool is_log(const c10::OperatorHandle& op) { return op.operator_name().name.starts_with("aten::_log_softmax"); }

}  // namespace

// _softmax(self, dim, half_to_float) and _log_softmax.
bool two_pass_softmax(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto dim = sharded_dim_named(self, argument(stack, op, 1));
  if (!dim || !self.is_floating_point() || self.numel() == 0) return false;
  const auto type = argument(stack, op, 2).toBool() ? c10::kFloat : self.scalar_type();
  const Tensor x = widened(self);
  const Tensor shifted = x - at::amax(x, *dim, true);
  const Tensor powers = at::exp(shifted);
  const Tensor total = at::sum(powers, *dim, true);
  answer(op, stack, (is_log(op) ? shifted - total.log() : powers / total).to(type));
  return true;
}

// _softmax_backward_data(grad_output, output, dim, input_dtype) and _log_softmax_backward_data.
bool two_pass_softmax_backward(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor output = argument(stack, op, 1).toTensor();
  const auto dim = sharded_dim_named(output, argument(stack, op, 2));
  if (!dim || !output.is_floating_point() || output.numel() == 0) return false;
  const Tensor grad = widened(argument(stack, op, 0).toTensor());
  const auto type = argument(stack, op, 3).toScalarType();
  const Tensor y = widened(output);
  Tensor result;
  if (is_log(op)) {
    result = grad - at::exp(y) * at::sum(grad, *dim, true);
  } else {
    const Tensor product = grad * y;
    result = product - y * at::sum(product, *dim, true);
  }
  answer(op, stack, result.to(type));
  return true;
}

// linalg_vector_norm(self, ord, dim, keepdim, dtype).
bool two_pass_norm(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto dims = dims_named(self, argument(stack, op, 2));
  if (!dims || !any_sharded(self, *dims) || !self.is_floating_point()) return false;
  const double order = argument(stack, op, 1).toScalar().toDouble();
  const bool keep = argument(stack, op, 3).toBool();
  const c10::IValue& dtype = argument(stack, op, 4);
  const auto type = dtype.isNone() ? self.scalar_type() : dtype.toScalarType();
  const Tensor x = at::abs(widened(self.to(type)));
  Tensor result;
  if (std::isinf(order)) {
    result = order > 0 ? at::amax(x, *dims, keep) : at::amin(x, *dims, keep);
  } else if (order == 0) {
    result = at::sum(at::ne(x, 0), *dims, keep);
  } else if (order == 1) {
    result = at::sum(x, *dims, keep);
  } else if (order == 2) {
    result = at::sqrt(at::sum(x * x, *dims, keep));
  } else {
    result = at::pow(at::sum(at::pow(x, order), *dims, keep), 1 / order);
  }
  answer(op, stack, result.to(type));
  return true;
}

// logsumexp(self, dim, keepdim).
bool two_pass_logsumexp(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto dims = dims_named(self, argument(stack, op, 1));
  if (!dims || !any_sharded(self, *dims) || !self.is_floating_point() || self.numel() == 0) return false;
  const bool keep = argument(stack, op, 2).toBool();
  const Tensor x = widened(self);
  Tensor largest = reduced(at::amax(x, *dims, true));
  largest = largest.masked_fill(at::isinf(largest), 0);  // infinity minus itself is no number
  const Tensor total = at::sum(at::exp(x - largest), *dims, keep);
  answer(op, stack, (total.log() + (keep ? largest : at::squeeze(largest, *dims))).to(self.scalar_type()));
  return true;
}

// var, std, var_mean and std_mean (self, dim, correction, keepdim).
bool two_pass_variance(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto dims = dims_named(self, argument(stack, op, 1));
  if (!dims || !any_sharded(self, *dims) || !self.is_floating_point()) return false;
  const c10::IValue& given = argument(stack, op, 2);
  const double correction = given.isNone() ? 1 : given.toScalar().toDouble();
  const bool keep = argument(stack, op, 3).toBool();
  double count = 1;
  for (const int64_t d : *dims) count *= static_cast<double>(self.size(d));
  const Tensor x = widened(self);
  const Tensor mean = at::mean(x, *dims, true);
  const Tensor away = x - mean;
  Tensor spread = at::sum(away * away, *dims, keep).div(std::max(0.0, count - correction));
  const std::string& name = op.operator_name().name;
  if (name.starts_with("aten::std")) spread = at::sqrt(spread);
  spread = spread.to(self.scalar_type());
  const bool with_mean = name.ends_with("_mean");
  answer(op, stack, spread);
  if (with_mean) stack.emplace_back((keep ? mean : at::squeeze(mean, *dims)).to(self.scalar_type()));
  return true;
}

}  // namespace sherd::detail
