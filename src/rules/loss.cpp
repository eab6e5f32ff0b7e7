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
      {"multi_margin_loss",                  "n c, n, c -> n    | whole c, when reduction=0"},
      {"multi_margin_loss",                  "n c, n, c ->      | whole c, reduce n, when reduction=2"},
      {"multi_margin_loss",                  "n c, n, c ->      | whole c, reduce(avg) n, when reduction=1"},
      {"multi_margin_loss_backward",         "n, n c, n, c -> n c | whole c, linear 0, when reduction=0"},
      {"multi_margin_loss_backward",         ", n c, n, c -> n c | whole c, linear 0, when reduction=2"},
      {"multilabel_margin_loss_forward",     "n c, n c -> n, n c | whole c, when reduction=0"},
      {"multilabel_margin_loss_forward",     "n c, n c -> , n c | whole c, reduce n, when reduction=2"},
      {"multilabel_margin_loss_forward",     "n c, n c -> , n c | whole c, reduce(avg) n, when reduction=1"},
      {"multilabel_margin_loss_backward",    "n, n c, n c, n c -> n c | whole c, linear 0, when reduction=0"},
      {"multilabel_margin_loss_backward",    ", n c, n c, n c -> n c | whole c, linear 0, when reduction=2"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
