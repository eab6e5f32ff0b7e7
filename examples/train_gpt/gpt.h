#pragma once
// A small GPT over characters in plain torch::nn. Nothing in this file knows of ranks, meshes or shards.

#include <torch/torch.h>

struct GptConfig {
  int64_t vocabulary = 0;
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t length = 64;  // of the longest sequence
  double dropout = 0;   // of attention weights and of what a block adds
};

/// Causal self-attention. Query, key and value are layers of their own: their outputs are then ordered by head.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const GptConfig& config) : heads_(config.heads), dropout_(config.dropout) {
    for (auto [layer, name] : {std::pair{&query_, "query"}, {&key_, "key"}, {&value_, "value"}, {&out_, "out"}})
      *layer = register_module(name, torch::nn::Linear(config.width, config.width));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto by_head = [&](const torch::Tensor& y) {
      return y.view({y.size(0), y.size(1), heads_, -1}).transpose(1, 2);
    };
    const auto mixed = torch::scaled_dot_product_attention(by_head(query_(x)), by_head(key_(x)), by_head(value_(x)),
                                                           /*attn_mask=*/{}, is_training() ? dropout_ : 0.0,
                                                           /*is_causal=*/true);
    return out_(mixed.transpose(1, 2).reshape(x.sizes()));
  }

 private:
  int64_t heads_;
  double dropout_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, out_{nullptr};
};
TORCH_MODULE(Attention);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const GptConfig& config)
      : attention_norm_(register_module("attention_norm", layer_norm(config))),
        attention_(register_module("attention", Attention(config))),
        mlp_norm_(register_module("mlp_norm", layer_norm(config))),
        up_(register_module("up", torch::nn::Linear(config.width, 4 * config.width))),
        down_(register_module("down", torch::nn::Linear(4 * config.width, config.width))),
        dropout_(config.dropout) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto dropped = [&](const torch::Tensor& added) { return torch::dropout(added, dropout_, is_training()); };
    const auto y = x + dropped(attention_(attention_norm_(x)));
    return y + dropped(down_(torch::gelu(up_(mlp_norm_(y)))));
  }

  static torch::nn::LayerNorm layer_norm(const GptConfig& config) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}));
  }

 private:
  torch::nn::LayerNorm attention_norm_;
  Attention attention_;
  torch::nn::LayerNorm mlp_norm_;
  torch::nn::Linear up_, down_;
  double dropout_;
};
TORCH_MODULE(Block);

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const GptConfig& config)
      : tokens_(register_module("tokens", torch::nn::Embedding(config.vocabulary, config.width))),
        positions_(register_module("positions", torch::nn::Embedding(config.length, config.width))),
        blocks_(register_module("blocks", torch::nn::ModuleList())),
        norm_(register_module("norm", BlockImpl::layer_norm(config))),
        head_(register_module("head", torch::nn::Linear(config.width, config.vocabulary))) {
    for (int64_t i = 0; i < config.layers; ++i) blocks_->push_back(Block(config));
    torch::NoGradGuard no_grad;
    tokens_->weight.mul_(0.02);
    positions_->weight.mul_(0.02);
  }

  /// [batch, length] of characters -> [batch, length, vocabulary] of logits for the character after each.
  torch::Tensor forward(const torch::Tensor& characters) {
    const auto places =
        torch::arange(characters.size(1), torch::TensorOptions(torch::kLong).device(characters.device()));
    auto x = tokens_(characters) + positions_(places);
    for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
    return head_(norm_(x));
  }

  torch::Tensor loss(const torch::Tensor& characters, const torch::Tensor& targets) {
    const auto logits = forward(characters);
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
  }

 private:
  torch::nn::Embedding tokens_, positions_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Gpt);
