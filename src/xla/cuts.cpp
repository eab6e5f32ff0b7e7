#include "xla/cuts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sherd::detail {
namespace {

// Where in `axes` an axis stands that cuts after `split` chunks were cut.
size_t place_after(const Mesh& mesh, const std::vector<int64_t>& axes, int64_t split) {
  int64_t chunks = 1;
  for (size_t i = 0; i <= axes.size(); ++i) {
    if (chunks == split) return i;
    if (i < axes.size()) chunks *= mesh.size(axes[i]);
  }
  return 0;
}

std::string rows_text(const std::vector<Run>& runs) {
  std::vector<std::string> texts;
  for (const Run& run : runs) texts.push_back(fmt::format("{}:{}", run.offset, run.offset + run.size));
  if (texts.empty()) return "no rows";
  constexpr size_t kShown = 4;
  const bool all = texts.size() <= kShown;
  if (!all) texts.resize(kShown);
  return fmt::format("rows {}{}", fmt::join(texts, ", "), all ? "" : ", ...");
}

// Neighbours that follow each other as one.
std::vector<Run> joined(const std::vector<Run>& runs) {
  std::vector<Run> whole;
  for (const Run& run : runs) {
    if (!whole.empty() && whole.back().offset + whole.back().size == run.offset)
      whole.back().size += run.size;
    else
      whole.push_back(run);
  }
  return whole;
}

}  // namespace

std::vector<std::vector<int64_t>> cutting_axes(const Layout& layout) {
  std::vector<std::vector<int64_t>> axes(layout.shape.size());
  for (int64_t axis = layout.mesh.ndim(); axis-- > 0;) {
    const Placement& placement = layout.placements[static_cast<size_t>(axis)];
    if (!is_shard(placement) || layout.mesh.size(axis) == 1) continue;
    auto& cutters = axes[static_cast<size_t>(sharded_dim(placement))];
    const auto* strided = std::get_if<StridedShard>(&placement);
    const size_t place = strided ? place_after(layout.mesh, cutters, strided->split) : 0;
    cutters.insert(cutters.begin() + static_cast<std::ptrdiff_t>(place), axis);
  }
  return axes;
}

int64_t count_tiles(const Mesh& mesh, const std::vector<int64_t>& axes) {
  int64_t tiles = 1;
  for (const int64_t axis : axes) tiles *= mesh.size(axis);
  return tiles;
}

std::optional<CutDifference> find_difference(const Layout& layout, int64_t dim, const std::vector<int64_t>& axes) {
  const int64_t size = layout.shape[static_cast<size_t>(dim)], tiles = count_tiles(layout.mesh, axes);
  const bool plain = std::all_of(axes.begin(), axes.end(), [&](int64_t axis) {
    return std::holds_alternative<Shard>(layout.placements[static_cast<size_t>(axis)]);
  });
  const bool in_order = std::is_sorted(axes.begin(), axes.end());
  if (plain && in_order && (axes.size() <= 1 || size % tiles == 0)) return std::nullopt;
  Dims coordinate(static_cast<size_t>(layout.mesh.ndim()), 0);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    int64_t index = tile;
    for (size_t i = axes.size(); i-- > 0;) {
      coordinate[static_cast<size_t>(axes[i])] = index % layout.mesh.size(axes[i]);
      index /= layout.mesh.size(axes[i]);
    }
    const std::vector<Run> held = joined(local_runs(layout, dim, coordinate));
    std::vector<Run> given = {chunk(size, tiles, tile)};
    if (given.front().size == 0) given.clear();
    if (held != given) return CutDifference{layout.mesh.rank_at(coordinate), rows_text(held), rows_text(given)};
  }
  return std::nullopt;
}

Placements cut_like_xla(const Layout& layout, int64_t dim, const std::vector<int64_t>& axes) {
  Placements placements = layout.placements;
  const int64_t size = layout.shape[static_cast<size_t>(dim)], tiles = count_tiles(layout.mesh, axes);
  int64_t pieces = 1;
  for (const int64_t axis : axes) {
    pieces *= layout.mesh.size(axis);
    Placement& placement = placements[static_cast<size_t>(axis)];
    placement = Shard(dim);
    if (axes.size() == 1 || size % tiles == 0) continue;
    Ragged ragged(dim, {});
    for (int64_t i = 0; i < pieces; ++i) ragged.cuts.push_back(chunk(size, tiles, i * (tiles / pieces)).offset);
    ragged.cuts.push_back(size);
    placement = std::move(ragged);
  }
  return placements;
}

}  // namespace sherd::detail
