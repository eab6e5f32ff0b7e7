#include "plan/held.h"

#include <algorithm>

namespace sherd::plan {
namespace {

bool cuts(const Layout& layout, size_t axis, int64_t dim) {
  return layout.mesh.axes()[axis].size > 1 && sharded_dim(layout.placements[axis]) == dim;
}

bool is_in(const std::vector<int64_t>& axes, size_t axis) {
  return std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
}

// Sorted, without what touches.
RunList joined(RunList runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& x, const Run& y) { return x.offset < y.offset; });
  RunList result;
  for (const Run& run : runs) {
    if (!result.empty() && result.back().offset + result.back().size == run.offset) {
      result.back().size += run.size;
    } else {
      result.push_back(run);
    }
  }
  return result;
}

// Calls visit(coordinate) for all places along some axes.
template <typename Visit>
void for_each_along(const Mesh& mesh, const std::vector<size_t>& axes, Dims coordinate, const Visit& visit) {
  for (const size_t axis : axes) coordinate[axis] = 0;
  while (true) {
    visit(coordinate);
    size_t i = axes.size();
    while (i > 0 && ++coordinate[axes[i - 1]] == mesh.axes()[axes[i - 1]].size) coordinate[axes[--i]] = 0;
    if (i == 0) return;
  }
}

// The rows of a dim that a layout gives to the places with some coordinate along some axes, whatever it is along the
// others; of these, the ones among `held`.
class Given {
 public:
  Given(const Layout& layout, int64_t dim, const std::vector<int64_t>& axes) : layout_(layout), dim_(dim) {
    for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
      if (!cuts(layout, axis, dim)) continue;
      cutting_.push_back(axis);
      fixed_.push_back(is_in(axes, axis));
      chunks_ = chunks_ && std::holds_alternative<Shard>(layout.placements[axis]);
    }
    // Along the axes to the right of the last fixed one, what is left is given whole.
    while (chunks_ && !fixed_.empty() && !fixed_.back()) {
      cutting_.pop_back();
      fixed_.pop_back();
    }
  }

  RunList rows(const RunList& held, const Dims& coordinate) const {
    if (std::find(fixed_.begin(), fixed_.end(), true) == fixed_.end()) return held;
    if (!chunks_) return intersect(held, all(coordinate));
    RunList result;
    for (const Run& run : held) add(run, coordinate, 0, {0, layout_.shape[static_cast<size_t>(dim_)]}, result);
    return joined(std::move(result));
  }

 private:
  // Of `block`, which the axes before the i-th leave, what lies in `window`: a large mesh has many blocks, few of which
  // a rank touches.
  void add(const Run& window, const Dims& coordinate, size_t i, const Run& block, RunList& result) const {
    const int64_t begin = std::max(window.offset, block.offset);
    const int64_t end = std::min(window.offset + window.size, block.offset + block.size);
    if (begin >= end) return;
    if (i == cutting_.size()) {
      result.push_back({begin, end - begin});
      return;
    }
    const int64_t n = layout_.mesh.axes()[cutting_[i]].size;
    const auto descend = [&](int64_t index) {
      const Run piece = chunk(block.size, n, index);
      add(window, coordinate, i + 1, {block.offset + piece.offset, piece.size}, result);
    };
    if (fixed_[i]) {
      descend(coordinate[cutting_[i]]);
      return;
    }
    const int64_t full = chunk(block.size, n, 0).size;
    for (int64_t index = (begin - block.offset) / full; index * full < end - block.offset; ++index) descend(index);
  }

  RunList all(const Dims& coordinate) const {
    std::vector<size_t> free;
    for (size_t i = 0; i < cutting_.size(); ++i) {
      if (!fixed_[i]) free.push_back(cutting_[i]);
    }
    RunList rows;
    for_each_along(layout_.mesh, free, coordinate, [&](const Dims& there) {
      const RunList more = local_runs(layout_, dim_, there);
      rows.insert(rows.end(), more.begin(), more.end());
    });
    return rows;
  }

  const Layout& layout_;
  const int64_t dim_;
  std::vector<size_t> cutting_;  // the axes that cut the dim
  std::vector<bool> fixed_;
  bool chunks_ = true;  // by plain Shards, each of which cuts one block into blocks
};

}  // namespace

Mesh without_ranks(const Mesh& mesh) { return mesh.has_default_ranks() ? mesh : Mesh(mesh.axes()); }

void Held::become(Placements placements, Cut cut) {
  layout_.placements = std::move(placements);
  cut_ = std::move(cut);
  if (!cut_.axes.empty() || !cut_.later.empty()) target_ = {layout_.mesh, layout_.shape, cut_.target};
}

// One sharer after the other: a later step shares what an earlier one left.
RunList Held::shared(RunList runs, const Dims& coordinate) const {
  for (const int64_t axis : cut_.sharers) {
    runs = share_of(runs, layout_.mesh.size(axis), coordinate[static_cast<size_t>(axis)]);
  }
  return runs;
}

RunGrid Held::grid(const Dims& coordinate) const {
  RunGrid grid = grid_of(layout_, coordinate);
  if (!cut_.axes.empty()) {
    for (size_t d = 0; d < grid.size(); ++d) {
      grid[d] = Given(target_, static_cast<int64_t>(d), cut_.axes).rows(grid[d], coordinate);
    }
  }
  if (cut_.sharers.empty()) return grid;
  RunList& runs = grid[static_cast<size_t>(cut_.dim)];
  if (cut_.later.empty()) {
    runs = shared(std::move(runs), coordinate);
    return grid;
  }
  std::vector<int64_t> axes = cut_.axes;
  axes.insert(axes.end(), cut_.later.begin(), cut_.later.end());
  const Given given(target_, cut_.dim, axes);
  RunList shares;
  for_each_along(layout_.mesh, {cut_.later.begin(), cut_.later.end()}, coordinate, [&](const Dims& there) {
    const RunList share = shared(given.rows(runs, there), coordinate);
    shares.insert(shares.end(), share.begin(), share.end());
  });
  runs = joined(std::move(shares));
  return grid;
}

}  // namespace sherd::plan
