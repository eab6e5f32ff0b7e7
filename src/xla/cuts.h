#pragma once
// Where DTensor and XLA cut a dim: axis by axis, or once by the product of the axes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sherd/layout.h"

namespace sherd::detail {

/// The axes of size above 1 that cut each dim, the one that cuts first in front. An axis whose StridedShard fits no
/// place among those to its right stands in front of them.
std::vector<std::vector<int64_t>> cutting_axes(const Layout& layout);

int64_t count_tiles(const Mesh& mesh, const std::vector<int64_t>& axes);

/// A rank that holds other rows of a dim than XLA would give it.
struct CutDifference {
  int64_t rank = 0;
  std::string held;  // "rows 2:3", "no rows"
  std::string given;
};
/// Compares rank by rank along `axes`, which cut `dim` in this order.
std::optional<CutDifference> find_difference(const Layout& layout, int64_t dim, const std::vector<int64_t>& axes);

/// The placements with those of `axes`, which cut `dim` and ascend, replaced by ones that cut as XLA does.
Placements cut_like_xla(const Layout& layout, int64_t dim, const std::vector<int64_t>& axes);

}  // namespace sherd::detail
