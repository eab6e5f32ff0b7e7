#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"
#include "sherd/xla_sharding.h"
#include "xla/cuts.h"
#include "xla/device_order.h"

namespace sherd {
namespace {

using Kind = XlaSharding::Kind;
using Subgroup = XlaSharding::Subgroup;

constexpr const char* kOperation = "xla_sharding";
constexpr int64_t kTilesInHelp = 16;
constexpr size_t kAxesToTry = 6;  // 720 orders

std::string text_of(const Layout& layout) {
  return to_string(TensorText{"", layout.shape, layout.placements}, layout.mesh) + " on " + to_string(layout.mesh);
}

[[noreturn]] void refuse_partial(const Layout& layout, size_t axis) {
  Placements right = layout.placements;
  right[axis] = Replicate();
  throw std::invalid_argument(ErrorText(kOperation, "XLA knows unreduced sums only")
                                  .fact("placement", fmt::format("{} on axis {}", to_string(layout.placements[axis]),
                                                                 layout.mesh.axis_label(static_cast<int64_t>(axis))))
                                  .help(fmt::format("redistribute(x, {})", to_code(right))));
}

[[noreturn]] void refuse_cuts(const Layout& layout, int64_t dim, std::vector<int64_t> axes,
                              const detail::CutDifference& difference) {
  const int64_t tiles = detail::count_tiles(layout.mesh, axes), size = layout.shape[static_cast<size_t>(dim)];
  std::sort(axes.begin(), axes.end());
  const bool brief = axes.size() == 1 || size % tiles == 0 || tiles <= kTilesInHelp;
  throw std::invalid_argument(
      ErrorText(kOperation, fmt::format("XLA cuts dim {} otherwise", dim))
          .fact("tensor", text_of(layout))
          .fact(fmt::format("rank {} holds", difference.rank), difference.held)
          .fact("XLA gives it", difference.given)
          .help(brief ? fmt::format("redistribute(x, {})", to_code(detail::cut_like_xla(layout, dim, axes)))
                      : fmt::format("pad dim {} to {}, a multiple of {}", dim, (size / tiles + 1) * tiles, tiles)));
}

// The order of the axes in which XLA counts the tiles of a dim. Where there are fewer rows than ranks it may be another
// than that in which the axes cut: 2 rows over [dp=2, tp=2] lie at (0, 0) and (1, 0).
std::vector<int64_t> order_of_axes(const Layout& layout, int64_t dim, const std::vector<int64_t>& axes) {
  const auto difference = detail::find_difference(layout, dim, axes);
  if (!difference) return axes;
  std::vector<int64_t> other = axes;
  std::sort(other.begin(), other.end());
  if (axes.size() <= kAxesToTry) {
    do {
      if (!detail::find_difference(layout, dim, other)) return other;
    } while (std::next_permutation(other.begin(), other.end()));
  }
  refuse_cuts(layout, dim, axes, *difference);
}

}  // namespace

XlaSharding xla_sharding(const Layout& given) {
  const Layout layout{given.mesh, given.shape,
                      checked_placements(kOperation, given.mesh, given.shape, given.placements)};
  if (layout.mesh.size() > detail::kMaxDevices)
    throw std::invalid_argument(
        ErrorText(kOperation, fmt::format("more devices than the {} that can be", detail::kMaxDevices))
            .fact("mesh", to_string(layout.mesh))
            .help("a smaller mesh"));
  XlaSharding sharding{.kind = Kind::tiled, .tiles = {}, .devices = {}, .subgroups = {}};
  std::vector<MeshAxis> sizes;  // of the axes in the order in which XLA counts them
  std::vector<int64_t> order;
  const auto count = [&](const std::vector<int64_t>& axes) {
    order.insert(order.end(), axes.begin(), axes.end());
    for (const int64_t axis : axes) sizes.push_back({"", layout.mesh.size(axis)});
    sharding.tiles.push_back(detail::count_tiles(layout.mesh, axes));
  };

  const auto by_dim = detail::cutting_axes(layout);
  for (size_t dim = 0; dim < by_dim.size(); ++dim) count(order_of_axes(layout, static_cast<int64_t>(dim), by_dim[dim]));
  const bool cuts = !order.empty();
  std::vector<int64_t> whole, unreduced;
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    const Placement& placement = layout.placements[axis];
    if (is_shard(placement) || layout.mesh.size(static_cast<int64_t>(axis)) == 1) continue;
    const auto* partial = std::get_if<Partial>(&placement);
    if (partial && partial->op != ReduceOp::sum) refuse_partial(layout, axis);
    (partial ? unreduced : whole).push_back(static_cast<int64_t>(axis));
  }
  if (!cuts && unreduced.empty()) return {};
  if (!cuts && whole.empty()) return {.kind = Kind::unreduced, .tiles = {}, .devices = {}, .subgroups = {}};
  for (const auto& [axes, group] :
       {std::pair{whole, Subgroup::replicated}, std::pair{unreduced, Subgroup::unreduced}}) {
    if (axes.empty()) continue;
    count(axes);
    sharding.subgroups.push_back(group);
  }

  const Mesh places(sizes);
  Dims coordinate(layout.placements.size(), 0);
  for (int64_t i = 0; i < places.size(); ++i) {
    const Dims place = places.coordinate_at(i);
    for (size_t k = 0; k < order.size(); ++k) coordinate[static_cast<size_t>(order[k])] = place[k];
    sharding.devices.push_back(layout.mesh.rank_at(coordinate));
  }
  return sharding;
}

}  // namespace sherd
