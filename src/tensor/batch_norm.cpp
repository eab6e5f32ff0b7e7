#include "tensor/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// All dims but that of the channels.
Dims sample_dims(const Tensor& input) {
  Dims dims = {0};
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return dims;
}

// How many elements a channel has.
double samples_of(const Tensor& input) {
  const int64_t count = input.numel() / input.size(1);
  return static_cast<double>(count);
}

// One number per channel, against a tensor of `ndim` dims.
Tensor per_channel(const Tensor& numbers, int64_t ndim) {
  Dims sizes(static_cast<size_t>(ndim), 1);
  sizes[1] = numbers.size(0);
  return numbers.view(sizes);
}

std::optional<Tensor> named(const c10::OperatorHandle& op, const Stack& stack, const char* name) {
  const auto place = op.schema().argumentIndexWithName(name);
  return place ? optional_tensor(argument(stack, op, static_cast<size_t>(*place))) : std::nullopt;
}

bool flag(const c10::OperatorHandle& op, const Stack& stack, const char* name, bool otherwise) {
  const auto place = op.schema().argumentIndexWithName(name);
  return place ? argument(stack, op, static_cast<size_t>(*place)).toBool() : otherwise;
}

// The dtype of the statistics that an operator returns: on a GPU that of sums; on the CPU that of the other per-channel
// tensors, or of the input where there are none.
c10::ScalarType statistics_type(const c10::OperatorHandle& op, const Stack& stack, const Tensor& input) {
  if (!input.device().is_cpu()) return widened(at::empty({0}, input.options())).scalar_type();
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    if (const auto tensor = named(op, stack, name)) return tensor->scalar_type();
  }
  return input.scalar_type();
}

double number(const c10::OperatorHandle& op, const Stack& stack, const char* name) {
  return argument(stack, op, static_cast<size_t>(*op.schema().argumentIndexWithName(name))).toDouble();
}

void update(const std::optional<Tensor>& running, const Tensor& now, double momentum) {
  if (!running) return;
  const Tensor& kept = *running;
  kept.mul_(1 - momentum).add_(now.to(kept.scalar_type()), momentum);
}

// What operators for one library's kernels keep for their backward: nothing.
Tensor empty_reserve(const DTensorMeta& meta) {
  const DeviceMesh& mesh = meta.spec->mesh;
  return from_parts(mesh, whole_on(mesh), {0}, at::empty({0}, meta.local.options().dtype(c10::kByte)));
}

}  // namespace

// (input, weight, bias, running_mean, running_var, training, momentum, eps) -> output, mean, 1 / deviation, and for
// some an empty tensor.
bool batch_norm_over_ranks(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  if (meta_of(given) == nullptr || given.dim() < 2 || given.numel() == 0) return false;
  if (!flag(op, stack, "training", true)) return false;
  const Dims dims = sample_dims(given);
  // Statistics that are kept are written to, which the schema of native_batch_norm does not say: a copy that was
  // gathered for the operator would be written in vain.
  const auto is_cut = [](const std::optional<Tensor>& kept) {
    const DTensorMeta* meta = kept ? meta_of(*kept) : nullptr;
    if (meta == nullptr) return false;
    const Placements& placements = meta->spec->placements;
    return !std::all_of(placements.begin(), placements.end(), is_replicate);
  };
  const bool kept_in_parts = is_cut(named(op, stack, "running_mean")) || is_cut(named(op, stack, "running_var"));
  if (!any_sharded(given, dims) && !kept_in_parts) return false;
  const auto weight = named(op, stack, "weight");
  const auto bias = named(op, stack, "bias");
  const Tensor x = widened(reduced(given));
  const double count = samples_of(given);
  const Tensor mean = at::mean(x, dims);
  const Tensor away = x - per_channel(mean, x.dim());
  const Tensor variance = at::sum(away * away, dims).div(count);
  const Tensor scale = at::rsqrt(variance + number(op, stack, "eps"));
  Tensor output = away * per_channel(scale, x.dim());
  if (weight) output = output * per_channel(*weight, x.dim());
  if (bias) output = output + per_channel(*bias, x.dim());
  const double momentum = number(op, stack, "momentum");
  update(named(op, stack, "running_mean"), mean, momentum);
  update(named(op, stack, "running_var"), variance * (count / (count - 1)), momentum);
  const size_t results = op.schema().returns().size();
  const c10::ScalarType type = statistics_type(op, stack, meta_of(given)->local);
  answer(op, stack, output.to(given.scalar_type()));
  stack.emplace_back(reduced(mean).to(type));
  stack.emplace_back(reduced(scale).to(type));
  if (results > 3) stack.emplace_back(empty_reserve(*meta_of(given)));
  return true;
}

// cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps) -> output, mean,
// 1 / deviation, reserve.
bool batch_norm_without_cudnn(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor input = argument(stack, op, 0).toTensor();
  if (meta_of(input) == nullptr) return false;
  const auto optional = [&](size_t i) { return optional_tensor(argument(stack, op, i)); };
  const auto [output, mean, scale] =
      at::native_batch_norm(input, optional(1), optional(2), optional(3), optional(4), argument(stack, op, 5).toBool(),
                            argument(stack, op, 6).toDouble(), argument(stack, op, 7).toDouble());
  const Tensor reserve = empty_reserve(*meta_of(input));
  answer(op, stack, output);
  for (const Tensor& result : {mean, scale, reserve}) stack.emplace_back(result);
  return true;
}

// (input, grad_output, weight, running_mean, running_var, save_mean, save_var, eps, reserve), where save_var is
// 1 / deviation.
bool batch_norm_backward_without_cudnn(const c10::OperatorHandle& op, Stack& stack) {
  const auto optional = [&](size_t i) { return optional_tensor(argument(stack, op, i)); };
  const auto [input_grad, weight_grad, bias_grad] = at::native_batch_norm_backward(
      argument(stack, op, 1).toTensor(), argument(stack, op, 0).toTensor(), optional(2), optional(3), optional(4),
      optional(5), optional(6), /*train=*/true, argument(stack, op, 7).toDouble(), {true, true, true});
  answer(op, stack, input_grad);
  for (const Tensor& grad : {weight_grad, bias_grad}) stack.emplace_back(grad);
  return true;
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask).
bool batch_norm_backward_over_ranks(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor grad_out = argument(stack, op, 0).toTensor();
  const Tensor input = argument(stack, op, 1).toTensor();
  if (input.dim() < 2 || input.numel() == 0) return false;
  const Dims dims = sample_dims(input);
  if (!any_sharded(input, dims) && !any_sharded(grad_out, dims)) return false;
  const bool train = flag(op, stack, "train", true);
  const auto weight = named(op, stack, "weight");
  const auto running_mean = named(op, stack, "running_mean");
  const auto running_var = named(op, stack, "running_var");
  const auto save_mean = named(op, stack, "save_mean");
  const auto save_scale = named(op, stack, "save_invstd");
  if (train ? !save_mean || !save_scale : !running_mean || !running_var) return false;
  const int64_t ndim = input.dim();
  const Tensor mean = widened(train ? *save_mean : *running_mean);
  const Tensor scale = train ? widened(*save_scale) : at::rsqrt(widened(*running_var) + number(op, stack, "eps"));
  const Tensor grad = widened(reduced(grad_out));
  const Tensor away = widened(reduced(input)) - per_channel(mean, ndim);
  const Tensor bias_grad = reduced(at::sum(grad, dims));
  const Tensor along = reduced(at::sum(grad * away, dims));
  Tensor result = grad;
  if (train) {
    const double count = samples_of(input);
    result = grad - per_channel(bias_grad.div(count), ndim) - away * per_channel(along * scale * scale / count, ndim);
  }
  Tensor factor = scale;
  if (weight) factor = factor * widened(*weight);
  const auto mask = argument(stack, op, 9).toBoolList();
  const auto type = weight ? weight->scalar_type() : input.scalar_type();
  const bool asked[] = {mask.get(0), mask.get(1), mask.get(2)};
  answer(op, stack, asked[0] ? (result * per_channel(factor, ndim)).to(input.scalar_type()) : Tensor());
  stack.emplace_back(asked[1] ? (along * scale).to(type) : Tensor());
  stack.emplace_back(asked[2] ? bias_grad.to(type) : Tensor());
  return true;
}

}  // namespace sherd::detail
