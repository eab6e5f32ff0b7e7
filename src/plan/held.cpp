#include "plan/held.h"

#include <algorithm>

namespace sherd::plan {
namespace {

bool cuts(const Layout& layout, size_t axis, int64_t dim) {
  return layout.mesh.axes()[axis].size > 1 && sharded_dim(layout.placements[axis]) == dim;
}

// The rows of a dim that the layout gives to the places with this coordinate along `axes`, whatever it is along others.
RunList rows_given(const Layout& layout, int64_t dim, Dims coordinate, const std::vector<int64_t>& axes) {
  std::vector<size_t> free;
  bool cut = false;
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    if (!cuts(layout, axis, dim)) continue;
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end()) {
      cut = true;
    } else {
      free.push_back(axis);
      coordinate[axis] = 0;
    }
  }
  if (!cut) return {{0, layout.shape[static_cast<size_t>(dim)]}};
  RunList rows;
  while (true) {
    const RunList more = local_runs(layout, dim, coordinate);
    rows.insert(rows.end(), more.begin(), more.end());
    size_t i = free.size();
    while (i > 0 && ++coordinate[free[i - 1]] == layout.mesh.axes()[free[i - 1]].size) coordinate[free[--i]] = 0;
    if (i == 0) return rows;
  }
}

}  // namespace

Mesh without_ranks(const Mesh& mesh) { return mesh.has_default_ranks() ? mesh : Mesh(mesh.axes()); }

void Held::become(Placements placements, Cut cut) {
  layout_.placements = std::move(placements);
  cut_ = std::move(cut);
  if (!cut_.axes.empty()) target_ = {layout_.mesh, layout_.shape, cut_.target};
}

RunGrid Held::grid(const Dims& coordinate) const {
  RunGrid grid = grid_of(layout_, coordinate);
  if (!cut_.axes.empty()) {
    for (size_t d = 0; d < grid.size(); ++d) {
      grid[d] = intersect(grid[d], rows_given(target_, static_cast<int64_t>(d), coordinate, cut_.axes));
    }
  }
  for (const int64_t axis : cut_.sharers) {  // one after the other: a later step shares what an earlier one left
    RunList& runs = grid[static_cast<size_t>(cut_.dim)];
    runs = share_of(runs, layout_.mesh.size(axis), coordinate[static_cast<size_t>(axis)]);
  }
  return grid;
}

}  // namespace sherd::plan
