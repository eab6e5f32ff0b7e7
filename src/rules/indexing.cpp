#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> indexing_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"embedding",                "v d, * -> * d             | mask v"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
