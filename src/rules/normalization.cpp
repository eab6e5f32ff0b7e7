#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> normalization_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"_softmax _log_softmax _safe_softmax",               "* d -> * d        | whole d, d=dim"},
      {"_softmax_backward_data _log_softmax_backward_data", "* d, * d -> * d   | whole d, d=dim"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
