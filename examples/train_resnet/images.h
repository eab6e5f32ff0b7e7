#pragma once
// Small pictures to learn, made and not downloaded: each class is a direction in which coloured waves run.

#include <ATen/core/Tensor.h>

#include <cstdint>

struct ImageBatch {
  at::Tensor images;   // [rows, 3, size, size], about 1 in size
  at::Tensor classes;  // [rows]
};

struct ImageOptions {
  int64_t size = 32;
  int64_t classes = 10;
  double noise = 0.5;  // beside waves of height 1
  at::ScalarType dtype = at::kFloat;
};

/// The batch of a step: the same for every caller that gives the same step and seed.
ImageBatch make_images(int64_t step, int64_t rows, uint64_t seed, const ImageOptions& options);
