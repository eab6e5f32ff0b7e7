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
      {"_int_mm",  "i k, k j -> i j            | reduce k, linear 0 1"},
      {"_addmm_activation", "+, i k, k j -> i j | whole k"},
      // Scales for the whole, and one for each row of the first and each column of the second matrix.
      {"_scaled_mm", "i k, k j, , , +, - -> i j       | reduce k"},
      {"_scaled_mm", "i k, k j, 1, 1, +, - -> i j     | reduce k"},
      {"_scaled_mm", "i k, k j, i 1, 1 j, j, - -> i j | whole k"},
      // Which rows or columns belong to a group is said by offsets that every rank needs.
      {"_grouped_mm", "b i k, b k j, -, + -> b i j    | reduce k, linear 0 1"},
      {"_grouped_mm", "i k, g k j, -, + -> i j        | whole i g, reduce k, linear 0 1"},
      {"_grouped_mm", "g i k, k j, -, + -> i j        | whole j g, reduce k, linear 0 1"},
      {"_grouped_mm", "i k, k j, -, + -> g i j        | whole k g, linear 0 1"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
