#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

namespace F = torch::nn::functional;

void add_pools(std::vector<OpSample>& all) {
  const auto image = ints({2, 3, 4, 4});
  all.push_back(unary(
      "max_pool2d_unbatched", [](auto& x) { return torch::max_pool2d(x, 2); }, ints({3, 4, 4})));
  all.push_back(unary(
      "avg_pool1d", [](auto& x) { return torch::avg_pool1d(x, 2); }, ints({2, 3, 6})));
  all.push_back(unary(
      "max_pool3d", [](auto& x) { return torch::max_pool3d(x, 2); }, ints({2, 3, 2, 4, 4})));
  all.push_back(unary(
      "avg_pool3d", [](auto& x) { return torch::avg_pool3d(x, 2); }, ints({2, 3, 2, 4, 4})));
  all.push_back(unary(
      "adaptive_avg_pool3d",
      [](auto& x) {
        return torch::adaptive_avg_pool3d(x, {1, 2, 2});
      },
      ints({2, 3, 2, 4, 4})));
  all.push_back(unary(
      "adaptive_max_pool2d",
      [](auto& x) {
        return std::get<0>(torch::adaptive_max_pool2d(x, {2, 2}));
      },
      image));
  all.push_back(unary(
      "adaptive_max_pool3d",
      [](auto& x) {
        return std::get<0>(torch::adaptive_max_pool3d(x, {1, 2, 2}));
      },
      ints({2, 3, 2, 4, 4})));
  all.push_back(unary(
      "adaptive_avg_pool1d", [](auto& x) { return torch::adaptive_avg_pool1d(x, 3); }, ints({2, 3, 6})));
  all.push_back(binary(
      "fractional_max_pool2d",
      [](auto& x, auto& s) {
        return std::get<0>(torch::fractional_max_pool2d(x, {2, 2}, {2, 2}, s.detach()));
      },
      image, ints({2, 3, 2}).abs() / 8));
  all.push_back(unary(
      "max_unpool2d",
      [](auto& x) {
        const auto [values, where] = torch::max_pool2d_with_indices(x, 2);
        return torch::max_unpool2d(values, where, {4, 4});
      },
      torch::arange(96, torch::kDouble).mul(41).remainder(97).view({2, 3, 4, 4})));
}

void add_resampling(std::vector<OpSample>& all) {
  const auto image = ints({2, 3, 3, 4});
  const auto resized = [&](const std::string& name, at::Tensor x, auto resize) {
    all.push_back(unary("upsample_" + name, resize, std::move(x)));
  };
  const auto scaled = [](const at::Tensor& x, auto mode, std::optional<bool> corners = {}) {
    auto options = F::InterpolateFuncOptions().scale_factor(std::vector<double>(x.dim() - 2, 2)).mode(mode);
    if (corners) options = options.align_corners(*corners);
    return F::interpolate(x, options);
  };
  resized("nearest1d", ints({2, 3, 4}), [=](auto& x) { return scaled(x, torch::kNearest); });
  resized("linear1d", ints({2, 3, 4}), [=](auto& x) { return scaled(x, torch::kLinear, false); });
  resized("nearest2d", image, [=](auto& x) { return scaled(x, torch::kNearest); });
  resized("nearest_exact2d", image, [=](auto& x) { return scaled(x, torch::kNearestExact); });
  resized("bilinear2d", image, [=](auto& x) { return scaled(x, torch::kBilinear, false); });
  resized("bicubic2d", image, [=](auto& x) { return scaled(x, torch::kBicubic, false); });
  resized("nearest3d", ints({2, 3, 2, 2, 3}), [=](auto& x) { return scaled(x, torch::kNearest); });
  resized("trilinear3d", ints({2, 3, 2, 2, 3}), [=](auto& x) { return scaled(x, torch::kTrilinear, false); });
  resized("bilinear2d_aa", image, [](auto& x) { return at::_upsample_bilinear2d_aa(x, {2, 2}, false); });
  all.push_back(binary(
      "grid_sample2d", [](auto& x, auto& g) { return torch::grid_sampler(x, g, 0, 0, false); }, image,
      ints({2, 2, 3, 2}, 1) / 5));
  all.push_back(binary(
      "grid_sample3d", [](auto& x, auto& g) { return torch::grid_sampler(x, g, 0, 0, false); }, ints({2, 2, 2, 3, 3}),
      ints({2, 2, 2, 2, 3}, 1) / 5));
}

void add_padding(std::vector<OpSample>& all) {
  const auto padded = [&](const std::string& name, at::Tensor x, std::vector<int64_t> pad, auto mode) {
    all.push_back(unary(
        "pad_" + name, [=](auto& t) { return F::pad(t, F::PadFuncOptions(pad).mode(mode)); }, std::move(x)));
  };
  padded("constant", ints({4, 5}), {1, 2}, torch::kConstant);
  padded("constant_rows", ints({4, 5}), {0, 0, 1, 0}, torch::kConstant);
  padded("constant_cut", ints({4, 5}), {-1, 1}, torch::kConstant);
  padded("reflect1d", ints({2, 3, 5}), {1, 2}, torch::kReflect);
  padded("reflect2d", ints({2, 3, 4, 4}), {1, 1, 2, 0}, torch::kReflect);
  padded("replicate2d", ints({2, 3, 4, 4}), {1, 1, 2, 0}, torch::kReplicate);
  padded("replicate3d", ints({2, 2, 2, 3, 3}), {1, 1, 0, 0, 1, 0}, torch::kReplicate);
  padded("circular", ints({2, 3, 5}), {1, 2}, torch::kCircular);
  all.push_back(unary(
      "pixel_shuffle", [](auto& x) { return torch::pixel_shuffle(x, 2); }, ints({2, 8, 3, 2})));
  all.push_back(unary(
      "pixel_unshuffle", [](auto& x) { return torch::pixel_unshuffle(x, 2); }, ints({2, 2, 6, 4})));
  all.push_back(unary(
      "im2col",
      [](auto& x) {
        return torch::im2col(x, {2, 2}, {1, 1}, {0, 0}, {1, 1});
      },
      ints({2, 3, 4, 4})));
  all.push_back(unary(
      "col2im",
      [](auto& x) {
        return torch::col2im(x, {4, 4}, {2, 2}, {1, 1}, {0, 0}, {1, 1});
      },
      ints({2, 8, 9})));
}

}  // namespace

void add_spatial(std::vector<OpSample>& all) {
  add_pools(all);
  add_resampling(all);
  add_padding(all);
}

}  // namespace sherd::testing
