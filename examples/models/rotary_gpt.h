#pragma once
// A GPT as they are built today, in plain torch::nn: rotary positions, grouped-query attention, RMS norms, a gated MLP.
// Nothing in this file knows of ranks, meshes or shards.

#include <torch/torch.h>

struct RotaryGptConfig {
  int64_t vocabulary = 0;
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t kv_heads = 2;  // each serves heads / kv_heads queries
  int64_t hidden = 344;  // of the MLP: about 8/3 of the width
  int64_t length = 64;   // of the longest sequence
  double base = 10000;   // of the slowest rotation
  double dropout = 0;    // of attention weights and of what a block adds
};

/// Scales every position to length 1, times a weight. libtorch has the function and no module.
class RmsNormImpl : public torch::nn::Module {
 public:
  explicit RmsNormImpl(int64_t width) : weight_(register_parameter("weight", torch::ones(width))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::rms_norm(x, weight_.sizes(), weight_.to(x.scalar_type()), 1e-5);
  }

 private:
  torch::Tensor weight_;
};
TORCH_MODULE(RmsNorm);

/// Turns the pairs (x[i], x[i + n/2]) of each head by an angle that grows with the position: what two positions say to
/// each other then depends on their distance.
class RotaryImpl : public torch::nn::Module {
 public:
  RotaryImpl(int64_t head_width, int64_t length, double base) {
    const auto exponents = torch::arange(0, head_width, 2, torch::kDouble) / static_cast<double>(head_width);
    const auto angles = torch::outer(torch::arange(length, torch::kDouble), torch::pow(base, -exponents));
    cos_ = register_buffer("cos", angles.cos().to(torch::get_default_dtype()));
    sin_ = register_buffer("sin", angles.sin().to(torch::get_default_dtype()));
  }

  /// [batch, heads, length, head width].
  torch::Tensor forward(const torch::Tensor& x) {
    const auto cos = cos_.narrow(0, 0, x.size(2)).to(x.scalar_type());
    const auto sin = sin_.narrow(0, 0, x.size(2)).to(x.scalar_type());
    const auto halves = x.chunk(2, -1);
    return torch::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
  }

 private:
  torch::Tensor cos_, sin_;
};
TORCH_MODULE(Rotary);

/// Causal attention in which several heads of queries share one of keys and values.
class GroupedAttentionImpl : public torch::nn::Module {
 public:
  explicit GroupedAttentionImpl(const RotaryGptConfig& config)
      : head_width_(config.width / config.heads),
        dropout_(config.dropout),
        query_(register_module("query", linear(config.width, config.heads * head_width_))),
        key_(register_module("key", linear(config.width, config.kv_heads * head_width_))),
        value_(register_module("value", linear(config.width, config.kv_heads * head_width_))),
        out_(register_module("out", linear(config.heads * head_width_, config.width))),
        rotary_(register_module("rotary", Rotary(head_width_, config.length, config.base))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto by_head = [&](const torch::Tensor& y) {
      return y.view({y.size(0), y.size(1), -1, head_width_}).transpose(1, 2);
    };
    const auto mixed = torch::scaled_dot_product_attention(
        rotary_(by_head(query_(x))), rotary_(by_head(key_(x))), by_head(value_(x)), /*attn_mask=*/{},
        is_training() ? dropout_ : 0.0, /*is_causal=*/true, /*scale=*/{}, /*enable_gqa=*/true);
    return out_(mixed.transpose(1, 2).flatten(2));
  }

  static torch::nn::Linear linear(int64_t in, int64_t out) {
    return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
  }

 private:
  int64_t head_width_;
  double dropout_;
  torch::nn::Linear query_, key_, value_, out_;
  Rotary rotary_;
};
TORCH_MODULE(GroupedAttention);

class RotaryBlockImpl : public torch::nn::Module {
 public:
  explicit RotaryBlockImpl(const RotaryGptConfig& config)
      : attention_norm_(register_module("attention_norm", RmsNorm(config.width))),
        attention_(register_module("attention", GroupedAttention(config))),
        mlp_norm_(register_module("mlp_norm", RmsNorm(config.width))),
        gate_(register_module("gate", GroupedAttentionImpl::linear(config.width, config.hidden))),
        up_(register_module("up", GroupedAttentionImpl::linear(config.width, config.hidden))),
        down_(register_module("down", GroupedAttentionImpl::linear(config.hidden, config.width))),
        dropout_(config.dropout) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto dropped = [&](const torch::Tensor& added) { return torch::dropout(added, dropout_, is_training()); };
    const auto y = x + dropped(attention_(attention_norm_(x)));
    const auto z = mlp_norm_(y);
    return y + dropped(down_(torch::silu(gate_(z)) * up_(z)));
  }

 private:
  RmsNorm attention_norm_;
  GroupedAttention attention_;
  RmsNorm mlp_norm_;
  torch::nn::Linear gate_, up_, down_;
  double dropout_;
};
TORCH_MODULE(RotaryBlock);

class RotaryGptImpl : public torch::nn::Module {
 public:
  explicit RotaryGptImpl(const RotaryGptConfig& config)
      : tokens_(register_module("tokens", torch::nn::Embedding(config.vocabulary, config.width))),
        blocks_(register_module("blocks", torch::nn::ModuleList())),
        norm_(register_module("norm", RmsNorm(config.width))),
        head_(register_module("head", GroupedAttentionImpl::linear(config.width, config.vocabulary))) {
    for (int64_t i = 0; i < config.layers; ++i) blocks_->push_back(RotaryBlock(config));
    const torch::NoGradGuard no_grad;
    tokens_->weight.mul_(0.02);
  }

  /// [batch, length] of characters -> [batch, length, vocabulary] of logits for the character after each.
  torch::Tensor forward(const torch::Tensor& characters) {
    auto x = tokens_(characters);
    for (const auto& block : *blocks_) x = block->as<RotaryBlock>()->forward(x);
    return head_(norm_(x));
  }

  torch::Tensor loss(const torch::Tensor& characters, const torch::Tensor& targets) {
    return torch::nn::functional::cross_entropy(forward(characters).flatten(0, 1), targets.flatten());
  }

 private:
  torch::nn::Embedding tokens_;
  torch::nn::ModuleList blocks_;
  RmsNorm norm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(RotaryGpt);
