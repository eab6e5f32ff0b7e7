#include "images.h"

#include <torch/torch.h>

#include <numbers>

namespace {

// Numbers in [0, 1) that follow from their places, as a hash: torch's own generator is shared by rank threads, which
// would draw in any order. The steps are splitmix64's, on int64 with wrapping products and logical shifts.
at::Tensor uniform(uint64_t seed, int64_t count) {
  const auto mixed = [](at::Tensor z, int shift, uint64_t factor) {
    const at::Tensor high = z.bitwise_right_shift(shift).bitwise_and((int64_t{1} << (64 - shift)) - 1);
    return z.bitwise_xor(high) * static_cast<int64_t>(factor);
  };
  at::Tensor z = torch::arange(1, count + 1, torch::kLong) * static_cast<int64_t>(0x9e3779b97f4a7c15u) +
                 static_cast<int64_t>(seed * 0xd1342543de82ef95u);
  z = mixed(z, 30, 0xbf58476d1ce4e5b9u);
  z = mixed(z, 27, 0x94d049bb133111ebu);
  return z.bitwise_right_shift(11).bitwise_and((int64_t{1} << 53) - 1).to(torch::kDouble) * 0x1p-53;
}

}  // namespace

ImageBatch make_images(int64_t step, int64_t rows, uint64_t seed, const ImageOptions& options) {
  constexpr double kPi = std::numbers::pi;
  const uint64_t place = (seed << 32) + static_cast<uint64_t>(step);
  const int64_t size = options.size, pixels = 3 * size * size;
  const auto draws = uniform(place, rows * (3 + pixels));
  const auto of_image = draws.narrow(0, 0, rows * 3).view({3, rows, 1, 1, 1});
  const auto of_pixel = draws.narrow(0, rows * 3, rows * pixels).view({rows, 3, size, size});

  const auto classes = (of_image[0] * options.classes).to(torch::kLong).clamp(0, options.classes - 1);
  const auto angle = classes * (kPi / static_cast<double>(options.classes));
  const auto phase = of_image[1] * (2 * kPi);
  const auto waves = 2 + of_image[2];  // across the picture
  const auto along = torch::arange(size, torch::kDouble) / static_cast<double>(size) - 0.5;
  const auto across = along.view({1, 1, 1, size}) * angle.cos() + along.view({1, 1, size, 1}) * angle.sin();
  const auto colour = torch::arange(3, torch::kDouble).view({1, 3, 1, 1}) * (2 * kPi / 3);  // three shifted waves
  const auto images = (across * waves * (2 * kPi) + phase + colour).sin() + (of_pixel - 0.5) * (2 * options.noise);
  return {images.to(options.dtype), classes.view({rows})};
}
