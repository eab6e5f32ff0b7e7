#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> spatial_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"convolution", "n c *, o c *, + -> n o *  | whole n c o"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
