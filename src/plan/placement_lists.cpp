#include "plan/placement_lists.h"

#include <algorithm>
#include <stdexcept>

namespace sherd::plan {

bool are_placements(const Mesh& mesh, const Dims& shape, const Placements& placements) {
  const bool ragged = std::any_of(placements.begin(), placements.end(),
                                  [](const Placement& p) { return std::holds_alternative<Ragged>(p); });
  if (!ragged) return true;
  try {
    checked_placements("", mesh, shape, placements);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

Placements without_partials(Placements placements) {
  for (Placement& p : placements) {
    if (is_partial(p)) p = Replicate();
  }
  return placements;
}

Placements without_dim(Placements placements, int64_t dim, bool dim_goes) {
  for (Placement& p : placements) {
    if (sharded_dim(p) == dim) {
      p = Replicate();
    } else if (dim_goes) {
      std::visit(
          [&](auto& shard) {
            if constexpr (requires { shard.dim; }) shard.dim -= shard.dim > dim ? 1 : 0;
          },
          p);
    }
  }
  return placements;
}

}  // namespace sherd::plan
