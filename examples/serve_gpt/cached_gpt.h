#pragma once
// A small GPT that writes text with a cache of keys and values, in plain torch::nn. Nothing in this file knows of
// ranks, meshes or shards: whoever makes the cache says where it lies.

#include <torch/torch.h>

#include <functional>
#include <vector>

struct GptSize {
  int64_t vocabulary = 64;
  int64_t layers = 2;
  int64_t width = 64;
  int64_t heads = 4;
  int64_t length = 96;  // of the longest text
};

/// What attention has seen so far: [batch, heads, length, width of a head] each, of which the first `filled` positions
/// are written.
struct KeyValueCache {
  torch::Tensor keys, values;
};

class CachedAttentionImpl : public torch::nn::Module {
 public:
  explicit CachedAttentionImpl(const GptSize& size) : heads_(size.heads) {
    for (auto [layer, name] : {std::pair{&query_, "query"}, {&key_, "key"}, {&value_, "value"}, {&out_, "out"}})
      *layer = register_module(name, torch::nn::Linear(size.width, size.width));
  }

  /// x: the positions from `filled` on.
  torch::Tensor forward(const torch::Tensor& x, KeyValueCache& cache, int64_t filled) {
    const auto by_head = [&](const torch::Tensor& y) {
      return y.view({y.size(0), y.size(1), heads_, -1}).transpose(1, 2);
    };
    const int64_t count = x.size(1);
    cache.keys.narrow(2, filled, count).copy_(by_head(key_(x)));
    cache.values.narrow(2, filled, count).copy_(by_head(value_(x)));
    // A prompt comes at once, and then one position at a time, which sees all before it.
    TORCH_CHECK(filled == 0 || count == 1, "after the prompt, one position at a time");
    const auto mixed = torch::scaled_dot_product_attention(
        by_head(query_(x)), cache.keys.narrow(2, 0, filled + count), cache.values.narrow(2, 0, filled + count),
        /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/count > 1);
    return out_(mixed.transpose(1, 2).reshape(x.sizes()));
  }

 private:
  int64_t heads_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, out_{nullptr};
};
TORCH_MODULE(CachedAttention);

class CachedBlockImpl : public torch::nn::Module {
 public:
  explicit CachedBlockImpl(const GptSize& size)
      : attention_norm_(register_module("attention_norm", norm(size))),
        attention_(register_module("attention", CachedAttention(size))),
        mlp_norm_(register_module("mlp_norm", norm(size))),
        up_(register_module("up", torch::nn::Linear(size.width, 4 * size.width))),
        down_(register_module("down", torch::nn::Linear(4 * size.width, size.width))) {}

  torch::Tensor forward(const torch::Tensor& x, KeyValueCache& cache, int64_t filled) {
    const auto y = x + attention_(attention_norm_(x), cache, filled);
    return y + down_(torch::gelu(up_(mlp_norm_(y))));
  }

  static torch::nn::LayerNorm norm(const GptSize& size) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size.width}));
  }

 private:
  torch::nn::LayerNorm attention_norm_;
  CachedAttention attention_;
  torch::nn::LayerNorm mlp_norm_;
  torch::nn::Linear up_, down_;
};
TORCH_MODULE(CachedBlock);

class CachedGptImpl : public torch::nn::Module {
 public:
  explicit CachedGptImpl(const GptSize& size)
      : size_(size),
        tokens_(register_module("tokens", torch::nn::Embedding(size.vocabulary, size.width))),
        positions_(register_module("positions", torch::nn::Embedding(size.length, size.width))),
        blocks_(register_module("blocks", torch::nn::ModuleList())),
        norm_(register_module("norm", CachedBlockImpl::norm(size))),
        head_(register_module("head", torch::nn::Linear(size.width, size.vocabulary))) {
    for (int64_t i = 0; i < size.layers; ++i) blocks_->push_back(CachedBlock(size));
  }

  /// A cache for `batch` texts. `zeros` makes a tensor of a shape.
  std::vector<KeyValueCache> make_cache(int64_t batch,
                                        const std::function<torch::Tensor(at::IntArrayRef)>& zeros) const {
    std::vector<KeyValueCache> cache;
    const std::vector<int64_t> shape{batch, size_.heads, size_.length, size_.width / size_.heads};
    for (int64_t i = 0; i < size_.layers; ++i) cache.push_back({zeros(shape), zeros(shape)});
    return cache;
  }

  /// The logits after the last of `tokens` [batch, count], which stand at the positions from `filled` on.
  torch::Tensor forward(const torch::Tensor& tokens, std::vector<KeyValueCache>& cache, int64_t filled) {
    const auto places =
        torch::arange(filled, filled + tokens.size(1), torch::TensorOptions(torch::kLong).device(tokens.device()));
    auto x = tokens_(tokens) + positions_(places);
    for (size_t i = 0; i < cache.size(); ++i) x = blocks_[i]->as<CachedBlock>()->forward(x, cache[i], filled);
    return head_(norm_(x.narrow(1, x.size(1) - 1, 1))).squeeze(1);
  }

 private:
  GptSize size_;
  torch::nn::Embedding tokens_, positions_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(CachedGpt);

/// The likeliest token, `count` times: each of them [batch].
inline std::vector<torch::Tensor> write_greedily(CachedGpt& model, std::vector<KeyValueCache> cache,
                                                 const torch::Tensor& prompt, int64_t count) {
  const c10::InferenceMode inference;
  std::vector<torch::Tensor> written;
  torch::Tensor tokens = prompt;
  int64_t filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto next = model->forward(tokens, cache, filled).argmax(-1);
    filled += tokens.size(1);
    tokens = next.unsqueeze(1);
    written.push_back(next);
  }
  return written;
}
