// The larger operators of neural networks, whose rules depend on their arguments: normalisations, convolution,
// attention, lookups.

#include <algorithm>

#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

// Factors for the dims of an input before the last `trailing`; these are reduced in outputs that lack them.
std::vector<int16_t> leading_factors(Builder& builder, size_t input, size_t trailing) {
  std::vector<int16_t> factors;
  const Dims& shape = builder.shape(input);
  for (size_t d = 0; d + trailing < shape.size(); ++d) factors.push_back(builder.factor(shape[d], FactorKind::reduce));
  return factors;
}

void put(BoundOperand& operand, const std::vector<int16_t>& factors) {
  for (size_t d = 0; d < factors.size() && d < operand.dims.size(); ++d) operand.dims[d] = {factors[d]};
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) -> output, mean, rstd; _fused_rms_norm without bias.
std::optional<BoundRule> layer_norm(const OpCall& call) {
  const auto normalized = call.list("normalized_shape");
  if (!normalized) return std::nullopt;
  Builder builder(call);
  const auto factors = leading_factors(builder, 0, normalized->size());
  put(builder.rule.inputs[0], factors);
  for (int i = 0; i < call.num_outputs; ++i) {
    BoundOperand& output = builder.output(builder.shape().size());
    put(output, factors);
    if (i == 0) {
      output.sizes = builder.shape();
    } else {
      output.sizes.assign(builder.shape().size(), 1);
    }
  }
  return builder.done();
}

// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) -> grads of input, weight, bias.
std::optional<BoundRule> layer_norm_backward(const OpCall& call) {
  const auto normalized = call.list("normalized_shape");
  if (!normalized) return std::nullopt;
  Builder builder(call);
  const size_t ndim = builder.shape().size();
  const auto factors = leading_factors(builder, 0, normalized->size());
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (builder.present(i) && builder.shape(i).size() == ndim && ndim > normalized->size()) {
      put(builder.rule.inputs[i], factors);
    }
  }
  put(builder.output(ndim), factors);
  for (BoundOperand& output : builder.rule.outputs) output.sizes = builder.shape();
  for (int i = 1; i < call.num_outputs; ++i) builder.output(normalized->size()).sizes = *normalized;
  return builder.done();
}

struct Convolution {
  bool grouped = false;
  bool transposed = false;
};

Convolution convolution_kind(const OpCall& call) {
  return {call.integer("groups", 1) != 1, call.integer("transposed", 0) != 0};
}

// convolution(input, weight, bias, ...): batch and output channels are free, input channels are summed over.
std::optional<BoundRule> convolution(const OpCall& call) {
  const Convolution kind = convolution_kind(call);
  Builder builder(call);
  const Dims& input = builder.shape(0);
  const Dims& weight = builder.shape(1);
  if (input.size() < 3 || input.size() != weight.size()) return std::nullopt;
  BoundOperand& output = builder.output(input.size());
  const int16_t batch = builder.factor(input[0]);
  builder.rule.inputs[0].dims[0] = {batch};
  output.dims[0] = {batch};
  // Linear in the input and in the weight, where the bias is Partial as they are.
  const bool biased = builder.present(2);
  builder.rule.linear = biased ? std::vector<uint64_t>{0b101, 0b110} : std::vector<uint64_t>{0b001, 0b010};
  if (biased) builder.rule.inputs[2].added = true;
  if (kind.grouped) return builder.done();
  const size_t out_dim = kind.transposed ? 1 : 0;
  const int16_t in_channels = builder.factor(input[1], FactorKind::reduce);
  const int16_t out_channels = builder.factor(weight[out_dim]);
  builder.rule.inputs[0].dims[1] = {in_channels};
  builder.rule.inputs[1].dims[1 - out_dim] = {in_channels};
  builder.rule.inputs[1].dims[out_dim] = {out_channels};
  output.dims[1] = {out_channels};
  if (biased) builder.rule.inputs[2].dims[0] = {out_channels};
  return builder.done();
}

// (grad_output, input, weight, ...) -> grads of input, weight, bias.
std::optional<BoundRule> convolution_backward(const OpCall& call) {
  const Convolution kind = convolution_kind(call);
  Builder builder(call);
  const Dims& input = builder.shape(1);
  const Dims& weight = builder.shape(2);
  if (input.size() < 3 || input.size() != weight.size()) return std::nullopt;
  builder.output(input.size());
  builder.output(weight.size());
  builder.output(1);
  auto& in = builder.rule.inputs;
  auto& out = builder.rule.outputs;
  const int16_t batch = builder.factor(input[0], FactorKind::reduce);
  in[0].dims[0] = in[1].dims[0] = out[0].dims[0] = {batch};
  if (kind.grouped) return builder.done();
  // Channels in are in the gradients of input and weight, channels out in those of weight and bias.
  const size_t out_dim = kind.transposed ? 1 : 0;
  const int16_t in_channels = builder.factor(input[1], FactorKind::reduce);
  const int16_t out_channels = builder.factor(weight[out_dim], FactorKind::reduce);
  in[0].dims[1] = {out_channels};
  in[1].dims[1] = out[0].dims[1] = {in_channels};
  in[2].dims[out_dim] = out[1].dims[out_dim] = {out_channels};
  in[2].dims[1 - out_dim] = out[1].dims[1 - out_dim] = {in_channels};
  out[2].dims[0] = {out_channels};
  out[2].same_for = {in_channels};
  if (const auto sizes = call.list("bias_sizes"); sizes && sizes->size() == 1) {
    builder.rule.sizes.push_back({call.find("bias_sizes")->argument, 2});
  }
  return builder.done();
}

// What has one number per channel: weight, bias and statistics.
void put_channels(Builder& builder, size_t first_input, int16_t channels) {
  for (size_t i = first_input; i < builder.rule.inputs.size(); ++i) {
    if (builder.rule.inputs[i].dims.size() == 1) builder.rule.inputs[i].dims[0] = {channels};
  }
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, ...): channels are independent; the
// batch is, too, where the statistics are given. Statistics that are kept stay whole: the operator writes to them, and
// its schema does not say so.
std::optional<BoundRule> batch_norm(const OpCall& call) {
  Builder builder(call);
  const Dims& input = builder.shape();
  if (input.size() < 2) return std::nullopt;
  // Where no argument says whether statistics are taken from the batch, the operator's name does.
  const bool updates = call.op.find("with_update") != std::string::npos;
  const bool training = call.integer("training", call.integer("train", updates ? 1 : 0)) != 0;
  builder.output(input.size()).sizes = input;
  for (int i = 1; i < call.num_outputs; ++i) builder.output(1).sizes = {input[1]};
  auto& in = builder.rule.inputs;
  auto& out = builder.rule.outputs;
  if (training && builder.present(3)) return builder.done();
  for (size_t d = 0; d < input.size(); ++d) {
    if (training && d != 1) continue;
    const int16_t factor = builder.factor(input[d]);
    in[0].dims[d] = out[0].dims[d] = {factor};
    if (d == 1) put_channels(builder, 1, factor);
    for (size_t i = 1; i < out.size(); ++i) {
      if (training) {
        out[i].dims[0] = {factor};
      } else {
        out[i].same_for.push_back(factor);  // empty
      }
    }
  }
  return builder.done();
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, ...) -> grads of input, weight, bias.
std::optional<BoundRule> batch_norm_backward(const OpCall& call) {
  Builder builder(call);
  const Dims& input = builder.shape(1);
  if (input.size() < 2 || builder.shape(0) != input) return std::nullopt;
  const int16_t channels = builder.factor(input[1]);
  builder.rule.inputs[0].dims[1] = builder.rule.inputs[1].dims[1] = {channels};
  put_channels(builder, 2, channels);
  builder.output(input.size()).sizes = input;
  builder.rule.outputs[0].dims[1] = {channels};
  for (int i = 1; i < call.num_outputs; ++i) builder.output(1).dims[0] = {channels};
  return builder.done();
}

// glu(self, dim) and glu_backward(grad_output, self, dim): one dim is halved, the others stay.
std::optional<BoundRule> glu(const OpCall& call) {
  const bool back = call.tensors.size() > 1;
  Builder builder(call);
  const Dims& shape = builder.shape(back ? 1 : 0);
  const int64_t dim = wrapped(call.integer("dim", -1), static_cast<int64_t>(shape.size()));
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int64_t>(d) == dim) {
      if (!back) output.sizes[d] = shape[d] / 2;
      continue;
    }
    output.dims[d] = {builder.factor(shape[d])};
    for (BoundOperand& input : builder.rule.inputs) input.dims[d] = output.dims[d];
  }
  return back ? builder.linear() : builder.done();
}

// renorm(self, p, dim, maxnorm): each slice along the dim has a norm of its own.
std::optional<BoundRule> renorm(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape();
  const int64_t dim = wrapped(call.integer("dim", 0), static_cast<int64_t>(shape.size()));
  if (!in_range(dim, static_cast<int64_t>(shape.size()))) return std::nullopt;
  const auto at = static_cast<size_t>(dim);
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  builder.rule.inputs[0].dims[at] = output.dims[at] = {builder.factor(shape[at])};
  return builder.done();
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps) -> output, mean, rstd: the batch is free.
std::optional<BoundRule> group_norm(const OpCall& call) {
  Builder builder(call);
  const Dims& input = builder.shape();
  const PlainArgument* rows = call.find("N");
  if (input.size() < 2 || rows == nullptr) return std::nullopt;
  const int16_t batch = builder.factor(input[0]);
  builder.rule.inputs[0].dims[0] = {batch};
  builder.output(input.size()).dims[0] = {batch};
  builder.rule.outputs[0].sizes = input;
  for (int i = 1; i < call.num_outputs; ++i) {
    builder.output(2).dims[0] = {batch};
    builder.rule.outputs.back().sizes = {input[0], call.integer("group", -1)};
  }
  builder.rule.ints.push_back({rows->argument, 0, 0});
  return builder.done();
}

// (grad_out, input, mean, rstd, weight, N, ...) -> grads of input, weight, bias.
std::optional<BoundRule> group_norm_backward(const OpCall& call) {
  Builder builder(call);
  const Dims& input = builder.shape(1);
  const PlainArgument* rows = call.find("N");
  if (input.size() < 2 || rows == nullptr) return std::nullopt;
  const int16_t batch = builder.factor(input[0], FactorKind::reduce);
  for (size_t i = 0; i < 4; ++i) builder.rule.inputs[i].dims[0] = {batch};
  builder.output(input.size()).dims[0] = {batch};
  builder.rule.outputs[0].sizes = input;
  for (int i = 1; i < call.num_outputs; ++i) builder.output(1).sizes = {input[1]};
  builder.rule.ints.push_back({rows->argument, 1, 0});
  return builder.done();
}

// The factors of attention. Heads are whole where several of the query's share one of the key's.
struct AttentionFactors {
  int16_t batch;
  int16_t heads;

  AttentionFactors(Builder& builder, const Dims& query, const Dims& key)
      : batch(builder.factor(query[0])),
        heads(builder.factor(query[1], key[1] == query[1] ? FactorKind::pass : FactorKind::whole)) {}

  void put(BoundOperand& operand) const {
    operand.dims[0] = {batch};
    operand.dims[1] = {heads};
  }
  /// On an operand that may be broadcast: where it has the query's sizes.
  void put_where_equal(BoundOperand& operand, const Dims& shape, const Dims& query) const {
    if (shape[0] == query[0] && query[0] != 1) operand.dims[0] = {batch};
    if (shape[1] == query[1] && query[1] != 1) operand.dims[1] = {heads};
  }
};

// Attention (query, key, value, ..., attn_mask): batch and heads are free.
std::optional<BoundRule> attention(const OpCall& call) {
  Builder builder(call);
  const Dims& query = builder.shape(0);
  if (query.size() != 4) return std::nullopt;
  if (builder.shape(1).size() != 4 || builder.shape(2).size() != 4) return std::nullopt;
  const AttentionFactors factors(builder, query, builder.shape(1));
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!builder.present(i)) continue;
    const Dims& shape = builder.shape(i);
    BoundOperand& operand = builder.rule.inputs[i];
    if (shape.size() == 4 || shape.size() == 3) {
      factors.put_where_equal(operand, shape, query);
      if (i >= 3 && shape.size() == 3) operand.dims = std::vector<DimFactors>(3);
    }
  }
  for (int i = 0; i < call.num_outputs; ++i) {
    BoundOperand& output = builder.output(i == 0 ? 4 : 3);
    factors.put(output);
    output.sizes[2] = query[2];
    if (i == 0) output.sizes[3] = builder.shape(2)[3];
  }
  return builder.done();
}

// The kernels for GPUs: (query, key, value, ...) -> output, logsumexp, and what their backward wants of them (seeds,
// lengths), which is whole.
std::optional<BoundRule> attention_on_gpu(const OpCall& call) {
  auto rule = attention(call);
  if (!rule) return rule;
  for (size_t o = 2; o < rule->outputs.size(); ++o) {
    rule->outputs[o] = {};
    rule->outputs[o].unused = true;
  }
  if (rule->outputs.size() > 1) {
    BoundOperand& logsumexp = rule->outputs[1];
    if (call.op.find("cudnn") != std::string::npos) logsumexp.dims.emplace_back();  // a last dim of 1
    logsumexp.sizes.assign(logsumexp.dims.size(), -1);
  }
  for (size_t i = 4; i < rule->inputs.size(); ++i) rule->inputs[i].unused = true;
  return rule;
}

// Their backward: (grad_out, query, key, value, ...) -> grads of query, key, value, and of a bias, which has no rule.
std::optional<BoundRule> attention_backward_on_gpu(const OpCall& call) {
  Builder builder(call);
  const Dims& query = builder.shape(1);
  if (query.size() != 4 || builder.shape(2).size() != 4) return std::nullopt;
  const bool biased = call.op.find("flash") == std::string::npos && builder.present(4) && call.num_outputs == 4;
  if (biased) return std::nullopt;
  const AttentionFactors factors(builder, query, builder.shape(2));
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!builder.present(i)) continue;
    const Dims& shape = builder.shape(i);
    if (shape.size() < 3 || shape[0] != query[0] || (shape[1] != query[1] && shape[1] != builder.shape(2)[1])) continue;
    factors.put(builder.rule.inputs[i]);
  }
  for (int i = 0; i < 3; ++i) factors.put(builder.output(4));
  for (int i = 3; i < call.num_outputs; ++i) builder.output(0).unused = true;
  return builder.done();
}

// (grad_out, query, key, value, out, logsumexp, ..., attn_mask) -> grads of query, key, value.
std::optional<BoundRule> attention_backward(const OpCall& call) {
  Builder builder(call);
  const Dims& query = builder.shape(1);
  if (query.size() != 4 || builder.shape(2).size() != 4) return std::nullopt;
  const AttentionFactors factors(builder, query, builder.shape(2));
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!builder.present(i) || builder.shape(i).size() < 3) continue;
    const Dims& shape = builder.shape(i);
    if (i < 6) {
      factors.put(builder.rule.inputs[i]);
    } else if (shape.size() == 4) {  // the mask, which may be broadcast
      factors.put_where_equal(builder.rule.inputs[i], shape, query);
    }
  }
  for (int i = 0; i < 3; ++i) factors.put(builder.output(4));
  return builder.done();
}

// Which attention kernel to take follows from shapes alone.
std::optional<BoundRule> attention_choice(const OpCall& call) {
  Builder builder(call);
  builder.rule.shape_only = (uint64_t{1} << call.tensors.size()) - 1;
  return builder.done();
}

// nll_loss_forward(self, target, weight, reduction, ignore_index) -> loss, total_weight: dim 1 holds the classes and is
// whole, the others, which the target has, are batch and, in nll_loss2d, pixels. A mean over sharded ones never comes
// here.
std::optional<BoundRule> nll_loss(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape();
  const Dims& target = builder.shape(1);
  if (shape.size() < 2 || target.size() + 1 != shape.size()) return std::nullopt;
  const int64_t reduction = call.integer("reduction", 1);
  const FactorKind kind = reduction == 1 ? FactorKind::whole : reduction == 2 ? FactorKind::reduce : FactorKind::pass;
  std::vector<DimFactors> samples;
  for (size_t d = 0; d < target.size(); ++d) {
    samples.push_back({builder.factor(target[d], kind)});
    builder.rule.inputs[0].dims[d == 0 ? 0 : d + 1] = builder.rule.inputs[1].dims[d] = samples[d];
  }
  BoundOperand& loss = builder.output(reduction == 0 ? samples.size() : 0);
  if (reduction == 0) loss.dims = samples;
  builder.output(0);
  for (const DimFactors& sample : samples) {
    if (reduction == 0) builder.rule.outputs[1].same_for.push_back(sample.front());
  }
  return builder.done();
}

// nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight) -> grad of self.
std::optional<BoundRule> nll_loss_backward(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape(1);
  const Dims& target = builder.shape(2);
  if (shape.size() < 2 || target.size() + 1 != shape.size()) return std::nullopt;
  builder.output(shape.size());
  auto& in = builder.rule.inputs;
  for (size_t d = 0; d < target.size(); ++d) {
    const int16_t sample = builder.factor(target[d]);
    if (builder.shape(0).size() == target.size()) in[0].dims[d] = {sample};
    const size_t at = d == 0 ? 0 : d + 1;
    in[1].dims[at] = in[2].dims[d] = builder.rule.outputs[0].dims[at] = {sample};
  }
  return builder.done();
}

// embedding_dense_backward(grad, indices, num_weights, ...) -> grad of the weight: positions are summed over, the
// width is free.
std::optional<BoundRule> embedding_backward(const OpCall& call) {
  Builder builder(call);
  const Dims& grad = builder.shape(0);
  const Dims& indices = builder.shape(1);
  if (grad.size() != indices.size() + 1 || call.integer("scale_grad_by_freq", 0) != 0) return std::nullopt;
  for (size_t d = 0; d < indices.size(); ++d) {
    const int16_t position = builder.factor(indices[d], FactorKind::reduce);
    builder.rule.inputs[0].dims[d] = builder.rule.inputs[1].dims[d] = {position};
  }
  const int16_t width = builder.factor(grad.back());
  builder.rule.inputs[0].dims.back() = {width};
  builder.output(2).dims[1] = {width};
  builder.rule.linear = {1};
  return builder.done();
}

// _embedding_bag(weight, indices, offsets, ..., mode, ...) -> bags, and what its backward wants: the width is free.
std::optional<BoundRule> embedding_bag(const OpCall& call) {
  constexpr int64_t kMax = 2;
  Builder builder(call);
  const Dims& weight = builder.shape();
  if (weight.size() != 2) return std::nullopt;
  const int16_t width = builder.factor(weight[1]);
  builder.rule.inputs[0].dims[1] = {width};
  builder.output(2).dims[1] = {width};
  for (int i = 1; i < call.num_outputs; ++i) {
    const bool places = i == 3 && call.integer("mode", 0) == kMax;  // of each column its own
    BoundOperand& output = builder.output(places ? 2 : 0);
    if (places) {
      output.dims[1] = {width};
    } else {
      output.unused = true;
    }
  }
  return builder.done();
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, ...) -> grad of the weight.
std::optional<BoundRule> embedding_bag_backward(const OpCall& call) {
  Builder builder(call);
  const Dims& grad = builder.shape();
  if (grad.size() != 2) return std::nullopt;
  const int16_t width = builder.factor(grad[1]);
  builder.rule.inputs[0].dims[1] = {width};
  if (builder.present(4) && builder.shape(4).size() == 2) builder.rule.inputs[4].dims[1] = {width};
  builder.output(2).dims[1] = {width};
  return builder.linear();
}

}  // namespace

std::span<const FunctionRow> network_functions() {
  static constexpr FunctionRow kRows[] = {
      {"native_layer_norm", layer_norm, 1, 3, "normalized_shape"},
      {"_fused_rms_norm", layer_norm, 1, 2, "normalized_shape"},
      {"native_layer_norm_backward", layer_norm_backward, 4, 3, "normalized_shape"},
      {"_fused_rms_norm_backward", layer_norm_backward, 3, 2, "normalized_shape"},
      {"convolution", convolution, 2},
      {"convolution_backward", convolution_backward, 3, 3},
      {"native_batch_norm _native_batch_norm_legit_no_training", batch_norm, 1, 3},
      {"native_batch_norm_backward", batch_norm_backward, 2, 3},
      {"_native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update "
       "_batch_norm_with_update_functional _batch_norm_no_update",
       batch_norm, 3, 3},
      {"glu", glu, 1, 1, "dim"},
      {"glu_backward", glu, 2, 1, "dim"},
      {"renorm", renorm, 1, 1, "dim"},
      {"native_group_norm", group_norm, 1, 3, "N"},
      {"native_group_norm_backward", group_norm_backward, 4, 3, "N"},
      {"_scaled_dot_product_flash_attention_for_cpu", attention, 3, 2},
      {"_scaled_dot_product_efficient_attention", attention_on_gpu, 3, 4},
      {"_scaled_dot_product_flash_attention _scaled_dot_product_cudnn_attention", attention_on_gpu, 3, 9},
      {"_scaled_dot_product_efficient_attention_backward", attention_backward_on_gpu, 6, 4},
      {"_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward",
       attention_backward_on_gpu, 6, 3},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward, 6, 3},
      {"_fused_sdp_choice", attention_choice, 3},
      {"nll_loss_forward nll_loss2d_forward", nll_loss, 2, 2},
      {"nll_loss_backward nll_loss2d_backward", nll_loss_backward, 3},
      {"embedding_dense_backward", embedding_backward, 2},
      {"_embedding_bag _embedding_bag_forward_only", embedding_bag, 3, 4},
      {"_embedding_bag_dense_backward", embedding_bag_backward, 4},
  };
  return kRows;
}

}  // namespace sherd::rules
