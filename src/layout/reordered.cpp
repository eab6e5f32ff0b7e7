#include "layout/reordered.h"

#include <algorithm>
#include <variant>

namespace sherd::detail {

Placements reordered(Placements placements, const std::vector<int64_t>& order) {
  for (Placement& p : placements) {
    std::visit(
        [&](auto& placement) {
          if constexpr (requires { placement.dim; }) {
            placement.dim = std::find(order.begin(), order.end(), placement.dim) - order.begin();
          }
        },
        p);
  }
  return placements;
}

}  // namespace sherd::detail
