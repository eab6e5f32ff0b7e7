// Operators on images and signals: batch and channels are free. What they need of the other dims is whole here; where
// a dim of these is sharded, rows are exchanged before the rule is asked (src/tensor/halo.cpp).

#include <algorithm>

#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

// constant_pad_nd(self, pad, value), reflection_pad2d(self, padding) and their kin, and reflection_pad2d_backward
// (grad_output, self, padding): pairs of numbers from the last dim on; dims without padding are free.
std::optional<BoundRule> pad(const OpCall& call) {
  const bool constant = call.op == "aten::constant_pad_nd";
  const auto pads = call.list(constant ? "pad" : "padding");
  Builder builder(call);
  const bool back = call.tensors.size() > 1;
  const Dims& shape = builder.shape(back ? 1 : 0);
  if (!pads || pads->size() % 2 != 0 || pads->size() / 2 > shape.size()) return std::nullopt;
  if (back && builder.shape(0).size() != shape.size()) return std::nullopt;
  BoundOperand& output = builder.output(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const size_t pair = 2 * (shape.size() - 1 - d);
    const bool named = pair < pads->size();
    output.sizes[d] = shape[d] + (named && !back ? (*pads)[pair] + (*pads)[pair + 1] : 0);
    if (named && ((*pads)[pair] != 0 || (*pads)[pair + 1] != 0)) continue;
    output.dims[d] = {builder.factor(shape[d])};
    for (BoundOperand& input : builder.rule.inputs) input.dims[d] = output.dims[d];
  }
  // Which value is padded with does not decide how the operator is sharded: it may not be zero.
  return constant ? builder.done() : builder.linear();
}

// im2col(self, kernel_size, ...): n c h w -> n (c k) l, k being the elements of the kernel; col2im the other way round.
std::optional<BoundRule> im2col(const OpCall& call) {
  const bool back = call.op == "aten::col2im";
  const auto kernel = call.list("kernel_size");
  Builder builder(call);
  const Dims& shape = builder.shape();
  if (!kernel || shape.size() != (back ? 3 : 4)) return std::nullopt;
  int64_t size = 1;
  for (const int64_t n : *kernel) size *= n;
  if (size < 1 || (back && shape[1] % size != 0)) return std::nullopt;
  builder.output(back ? 4 : 3);
  auto& images = back ? builder.rule.outputs[0].dims : builder.rule.inputs[0].dims;
  auto& columns = back ? builder.rule.inputs[0].dims : builder.rule.outputs[0].dims;
  images[0] = columns[0] = {builder.factor(shape[0])};
  images[1] = {builder.factor(back ? shape[1] / size : shape[1])};
  columns[1] = {images[1][0], builder.factor(size, FactorKind::whole)};
  builder.rule.takes_empty = back;  // a made-up channel would not be a whole kernel
  return builder.linear();
}

// pixel_shuffle(self, r): * (c r r) h w -> * c (h r) (w r), and pixel_unshuffle the other way round.
std::optional<BoundRule> pixel_shuffle(const OpCall& call) {
  const bool back = call.op == "aten::pixel_unshuffle";
  const int64_t r = call.integer(back ? "downscale_factor" : "upscale_factor", 0);
  Builder builder(call);
  const Dims& shape = builder.shape();
  const size_t n = shape.size();
  if (n < 3 || r < 1) return std::nullopt;
  if (back ? shape[n - 2] % r != 0 || shape[n - 1] % r != 0 : shape[n - 3] % (r * r) != 0) return std::nullopt;
  builder.output(n).sizes.assign(n, 1);
  auto& deep = back ? builder.rule.outputs[0].dims : builder.rule.inputs[0].dims;
  auto& wide = back ? builder.rule.inputs[0].dims : builder.rule.outputs[0].dims;
  for (size_t d = 0; d + 3 < n; ++d) deep[d] = wide[d] = {builder.factor(shape[d])};
  const int16_t channels = builder.factor(back ? shape[n - 3] : shape[n - 3] / (r * r));
  const int16_t rows = builder.factor(r, FactorKind::whole);
  const int16_t columns = builder.factor(r, FactorKind::whole);
  const int16_t height = builder.factor(back ? shape[n - 2] / r : shape[n - 2]);
  const int16_t width = builder.factor(back ? shape[n - 1] / r : shape[n - 1]);
  deep[n - 3] = {channels, rows, columns};
  deep[n - 2] = {height};
  deep[n - 1] = {width};
  wide[n - 3] = {channels};
  wide[n - 2] = {height, rows};
  wide[n - 1] = {width, columns};
  builder.rule.takes_empty = true;
  return builder.linear();
}

}  // namespace

std::span<const FunctionRow> spatial_functions() {
  static constexpr FunctionRow kRows[] = {
      {"constant_pad_nd", pad, 1, 1, "pad"},
      {"reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d", pad,
       1, 1, "padding"},
      {"reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
       "replication_pad2d_backward replication_pad3d_backward",
       pad, 2, 1, "padding"},
      {"im2col col2im", im2col, 1, 1, "kernel_size"},
      {"pixel_shuffle", pixel_shuffle, 1, 1, "upscale_factor"},
      {"pixel_unshuffle", pixel_shuffle, 1, 1, "downscale_factor"},
  };
  return kRows;
}

std::span<const Row> spatial_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"avg_pool2d _adaptive_avg_pool2d",           "* h w -> * p q                   | whole h w p q, linear 0"},
      {"avg_pool3d _adaptive_avg_pool3d",           "* t h w -> * o p q               | whole t h w o p q, linear 0"},
      {"avg_pool2d_backward _adaptive_avg_pool2d_backward",
                                                    "* p q, * h w -> * h w            | whole h w p q, linear 0"},
      {"avg_pool3d_backward _adaptive_avg_pool3d_backward",
                                                    "* o p q, * t h w -> * t h w      | whole t h w o p q, linear 0"},
      {"max_pool2d_with_indices adaptive_max_pool2d",
                                                    "* h w -> * p q, * p q            | whole h w p q"},
      {"max_pool3d_with_indices adaptive_max_pool3d",
                                                    "* t h w -> * o p q, * o p q      | whole t h w o p q"},
      {"max_pool2d_with_indices_backward adaptive_max_pool2d_backward",
                                                    "* p q, * h w, * p q -> * h w     | whole h w p q, linear 0"},
      {"max_pool3d_with_indices_backward adaptive_max_pool3d_backward",
                                                    "* o p q, * t h w, * o p q -> * t h w | whole t h w o p q, linear 0"},
      {"fractional_max_pool2d",                     "n c h w, n c s -> n c p q, n c p q | whole h w p q s"},
      {"fractional_max_pool3d",                     "n c t h w, n c s -> n c o p q, n c o p q | whole t h w o p q s"},
      {"fractional_max_pool2d_backward",            "n c p q, n c h w, n c p q -> n c h w | whole h w p q, linear 0"},
      {"fractional_max_pool3d_backward",            "n c o p q, n c t h w, n c o p q -> n c t h w | whole t h w o p q, linear 0"},
      {"max_unpool2d",                              "* p q, * p q -> * h w            | whole h w p q, linear 0"},
      {"max_unpool3d",                              "* o p q, * o p q -> * t h w      | whole t h w o p q, linear 0"},

      {"upsample_linear1d upsample_nearest1d _upsample_nearest_exact1d",
                                                    "n c w -> n c q                   | whole w q, linear 0"},
      {"upsample_bilinear2d upsample_bicubic2d upsample_nearest2d _upsample_nearest_exact2d _upsample_bilinear2d_aa "
       "_upsample_bicubic2d_aa _upsample_lanczos2d_aa",
                                                    "n c h w -> n c p q               | whole h w p q, linear 0"},
      {"upsample_trilinear3d upsample_nearest3d _upsample_nearest_exact3d",
                                                    "n c t h w -> n c o p q           | whole t h w o p q, linear 0"},
      {"upsample_linear1d_backward upsample_nearest1d_backward _upsample_nearest_exact1d_backward",
                                                    "n c q -> n c w                   | whole w q, linear 0, size input_size"},
      {"upsample_bilinear2d_backward upsample_bicubic2d_backward upsample_nearest2d_backward "
       "_upsample_nearest_exact2d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward "
       "_upsample_lanczos2d_aa_backward",
                                                    "n c p q -> n c h w               | whole h w p q, linear 0, size input_size"},
      {"upsample_trilinear3d_backward upsample_nearest3d_backward _upsample_nearest_exact3d_backward",
                                                    "n c o p q -> n c t h w           | whole t h w o p q, linear 0, size input_size"},
      {"grid_sampler_2d",                           "n c h w, n p q x -> n c p q      | whole h w x, linear 0"},
      {"grid_sampler_3d",                           "n c t h w, n o p q x -> n c o p q | whole t h w x, linear 0"},
      {"grid_sampler_2d_backward",                  "n c p q, n c h w, n p q x -> n c h w, n p q x | whole h w x, reduce c p q, linear 0"},
      {"grid_sampler_3d_backward",                  "n c o p q, n c t h w, n o p q x -> n c t h w, n o p q x | whole t h w x, reduce c o p q, linear 0"},

      {"channel_shuffle",                           "n c * -> n c *                   | whole c, linear 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
