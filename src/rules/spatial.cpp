#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> spatial_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"max_pool2d_with_indices", "n c h w -> n c p q, n c p q  | whole h w p q"},
      {"avg_pool2d _adaptive_avg_pool2d", "n c h w -> n c p q  | whole h w p q, linear 0"},
      {"avg_pool2d_backward", "n c p q, n c h w -> n c h w  | whole h w p q, linear 0"},
      {"max_pool2d_with_indices_backward", "n c p q, n c h w, n c p q -> n c h w  | whole h w p q, linear 0"},
      {"_adaptive_avg_pool2d_backward", "n c p q, n c h w -> n c h w  | whole h w p q, linear 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
