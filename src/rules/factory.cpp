#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> factory_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"zeros_like ones_like empty_like full_like", "* -> *  | shape 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
