#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> contraction_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"mm",       "i k, k j -> i j            | reduce k, linear 0 1"},
      {"bmm",      "b i k, b k j -> b i j      | reduce k, linear 0 1"},
      {"addmm",    "+, i k, k j -> i j         | reduce k, linear 0+1 0+2"},
      {"baddbmm",  "+, b i k, b k j -> b i j   | reduce k, linear 0+1 0+2"},
      {"addbmm",   "+, b i k, b k j -> i j     | reduce b k, linear 0+1 0+2"},
      {"mv",       "i k, k -> i                | reduce k, linear 0 1"},
      {"addmv",    "+, i k, k -> i             | reduce k, linear 0+1 0+2"},
      {"dot vdot", "k, k ->                    | reduce k, linear 0 1"},
      {"addr",     "+, i, j -> i j"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
