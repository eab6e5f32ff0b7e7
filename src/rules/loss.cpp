#include "rules/registry.h"

namespace sherd::rules {

// reduction: 0 none, 1 mean, 2 sum. Means and their gradients are rewritten as sums before they come here
// (src/tensor/rewrites.cpp), so that uneven shards need no communication either.
std::span<const Row> loss_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"mse_loss smooth_l1_loss huber_loss soft_margin_loss",
                                             "*, * -> *         | when reduction=0"},
      {"mse_loss smooth_l1_loss huber_loss soft_margin_loss",
                                             "d, d ->           | reduce d, d=dim, when reduction=2"},
      {"mse_loss smooth_l1_loss huber_loss soft_margin_loss",
                                             "d, d ->           | reduce(avg) d, d=dim, when reduction=1"},
      {"mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward",
                                             "*, *, * -> *      | linear 0, when reduction=0"},
      {"mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward",
                                             "*, *, * -> *      | linear 0, when reduction=2"},
      {"binary_cross_entropy",               "*, *, * -> *      | when reduction=0"},
      {"binary_cross_entropy",               "d, d, d ->        | reduce d, d=dim, when reduction=2"},
      {"binary_cross_entropy",               "d, d, d ->        | reduce(avg) d, d=dim, when reduction=1"},
      {"binary_cross_entropy_backward",      "*, *, *, * -> *   | linear 0, when reduction=0"},
      {"binary_cross_entropy_backward",      "*, *, *, * -> *   | linear 0, when reduction=2"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
