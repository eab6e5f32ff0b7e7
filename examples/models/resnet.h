#pragma once
// A residual network for small images (He et al. 2015, section 4.2: 6 n + 2 layers), in plain torch::nn. Nothing in
// this file knows of ranks, meshes or shards.

#include <torch/torch.h>

struct ResNetConfig {
  int64_t blocks = 1;    // in each of the three stages
  int64_t width = 16;    // channels of the first stage; the others have two and four times as many
  int64_t channels = 3;  // of an image
  int64_t classes = 10;
};

/// Two convolutions, and a way around them.
class ResidualBlockImpl : public torch::nn::Module {
 public:
  ResidualBlockImpl(int64_t in, int64_t out, int64_t stride)
      : conv1_(register_module("conv1", conv(in, out, 3, stride))),
        norm1_(register_module("norm1", torch::nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", conv(out, out, 3, 1))),
        norm2_(register_module("norm2", torch::nn::BatchNorm2d(out))) {
    if (in == out && stride == 1) return;
    shortcut_ =
        register_module("shortcut", torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = norm2_(conv2_(torch::relu(norm1_(conv1_(x)))));
    return torch::relu(y + (shortcut_ ? shortcut_->forward(x) : x));
  }

  static torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t size, int64_t stride) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d norm1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d norm2_;
  torch::nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(ResidualBlock);

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ResNetConfig& config)
      : stem_(register_module("stem", ResidualBlockImpl::conv(config.channels, config.width, 3, 1))),
        stem_norm_(register_module("stem_norm", torch::nn::BatchNorm2d(config.width))),
        blocks_(register_module("blocks", torch::nn::Sequential())),
        head_(register_module("head", torch::nn::Linear(4 * config.width, config.classes))) {
    int64_t width = config.width;
    for (const int64_t stride : {1, 2, 2}) {
      const int64_t out = width * stride;
      for (int64_t i = 0; i < config.blocks; ++i) {
        blocks_->push_back(ResidualBlock(width, out, i == 0 ? stride : 1));
        width = out;
      }
    }
  }

  /// [batch, channels, height, width] -> [batch, classes] of logits.
  torch::Tensor forward(const torch::Tensor& images) {
    const auto x = torch::relu(stem_norm_(stem_(images)));
    return head_(blocks_->forward(x).mean({2, 3}));
  }

  torch::Tensor loss(const torch::Tensor& images, const torch::Tensor& classes) {
    return torch::nn::functional::cross_entropy(forward(images), classes);
  }

 private:
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d stem_norm_;
  torch::nn::Sequential blocks_;
  torch::nn::Linear head_;
};
TORCH_MODULE(ResNet);
