#pragma once
// A ResNet that learns pictures, as something to train (train/training.h).

#include <string>
#include <utility>

#include "images.h"
#include "models/resnet.h"
#include "train/training.h"

/// A model whose weights follow from the seed alone. Draws from torch's generator, which the threads of a program
/// share: call it from one.
inline ResNet make_resnet(const ResNetConfig& config, at::ScalarType dtype, uint64_t seed) {
  torch::manual_seed(seed);
  ResNet model(config);
  model->to(dtype);
  return model;
}

/// How axis tp holds a parameter or buffer of a ResNet: the first convolution of a block is cut by its output channels,
/// its norm with it, and the second one by its input channels. What the ranks add up then is what the block returns:
/// one all-reduce per block and direction.
inline sherd::Placement resnet_along_tp(const std::string& name) {
  const bool counts = name.ends_with("num_batches_tracked");
  if (name.ends_with("conv1.weight") || (name.find(".norm1.") != std::string::npos && !counts)) return sherd::Shard(0);
  if (name.ends_with("conv2.weight")) return sherd::Shard(1);
  return sherd::Replicate();
}

class ImageTask : public Task {
 public:
  ImageTask(ResNet model, int64_t batch, uint64_t seed, const ImageOptions& options)
      : model_(std::move(model)), batch_(batch), seed_(seed), options_(options) {}

  torch::nn::Module& module() override { return *model_; }
  at::Tensor loss(int64_t step, const Place& place) override {
    const ImageBatch batch = make_images(step, batch_, seed_, options_);
    return model_->loss(place(batch.images), place(batch.classes));
  }
  sherd::Placement along_tp(const std::string& name) const override { return resnet_along_tp(name); }

 private:
  ResNet model_;
  int64_t batch_;
  uint64_t seed_;
  ImageOptions options_;
};
