#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "sherd/error.h"
#include "sherd/xla_sharding.h"
#include "xla/check_sharding.h"
#include "xla/cuts.h"

namespace sherd {
namespace {

using Kind = XlaSharding::Kind;
using Subgroup = XlaSharding::Subgroup;

constexpr const char* kOperation = "placements_of";

// Finds the axes that make the tiles. An axis of the mesh steps through the tiles of one dim, always by the same number
// of tiles; or it changes no tile.
class AxisSearch {
 public:
  AxisSearch(const XlaSharding& sharding, const Mesh& mesh, const Dims& shape)
      : sharding_(sharding), mesh_(mesh), shape_(shape) {}

  Placements run() {
    detail::check_sharding(kOperation, sharding_);
    const auto everywhere = [&](const Placement& p) { return Placements(static_cast<size_t>(mesh_.ndim()), p); };
    switch (sharding_.kind) {
      case Kind::replicated:
        return everywhere(Replicate());
      case Kind::unreduced:
        return everywhere(Partial());
      case Kind::manual:
      case Kind::unknown:
        refuse("the sharding does not say who holds what", "a sharding with devices=, or {replicated}");
      case Kind::maximal:
        if (mesh_.ranks() == sharding_.devices) return everywhere(Replicate());
        refuse("one device holds everything, the others nothing", "{replicated}, or a mesh of that device alone");
      case Kind::tiled:
        break;
    }
    check_fit();
    find_steps();
    check_every_device();
    return placements();
  }

 private:
  void check_fit() {
    const auto ndim = static_cast<int64_t>(shape_.size());
    if (sharding_.ndim() != ndim)
      refuse(fmt::format("the sharding is for {} dims, the tensor has {}", sharding_.ndim(), ndim),
             "a sharding with one number of tiles for each dim, and the subgroups behind them");
    if (static_cast<int64_t>(sharding_.devices.size()) != mesh_.size())
      refuse(fmt::format("{} devices for a mesh of {}", sharding_.devices.size(), mesh_.size()),
             "a mesh of all devices of the sharding");
    for (size_t i = 0; i < sharding_.devices.size(); ++i) position_[sharding_.devices[i]] = static_cast<int64_t>(i);
    for (const int64_t rank : mesh_.ranks())
      if (position_.count(rank) == 0)
        refuse(fmt::format("rank {} of the mesh is no device of the sharding", rank),
               "a mesh of all devices of the sharding");
    for (size_t g = 0; g < sharding_.subgroups.size(); ++g) {
      if (sharding_.subgroups[g] == Subgroup::manual && sharding_.tiles[shape_.size() + g] > 1)
        refuse("no placement says that a program cuts by itself", "a sharding without manual subgroups");
    }
    tiles_.assign(sharding_.tiles.begin(), sharding_.tiles.begin() + ndim);
    tiles_.push_back(1);
    for (size_t g = 0; g < sharding_.subgroups.size(); ++g)
      if (sharding_.subgroups[g] == Subgroup::unreduced) tiles_.back() *= sharding_.tiles[shape_.size() + g];
  }

  // The tile of a rank in each dim, and last its place among those that hold parts of one sum.
  Dims tile_of(int64_t rank) const {
    Dims tile(shape_.size() + 1, 0);
    int64_t index = position_.at(rank), parts = 1;
    for (size_t d = sharding_.tiles.size(); d-- > 0;) {
      const int64_t at = index % sharding_.tiles[d];
      index /= sharding_.tiles[d];
      if (d < shape_.size()) {
        tile[d] = at;
      } else if (sharding_.subgroups[d - shape_.size()] == Subgroup::unreduced) {
        tile.back() += at * parts;
        parts *= sharding_.tiles[d];
      }
    }
    return tile;
  }

  void find_steps() {
    Dims coordinate(static_cast<size_t>(mesh_.ndim()), 0);
    axes_.resize(tiles_.size());
    step_.assign(static_cast<size_t>(mesh_.ndim()), 0);
    const Dims first = tile_of(mesh_.rank_at(coordinate));
    for (size_t axis = 0; axis < coordinate.size(); ++axis) {
      if (mesh_.axes()[axis].size == 1) continue;
      coordinate[axis] = 1;
      const Dims next = tile_of(mesh_.rank_at(coordinate));
      coordinate[axis] = 0;
      for (size_t d = 0; d < tiles_.size(); ++d) {
        if (next[d] == first[d]) continue;
        if (step_[axis] != 0 || next[d] < first[d]) refuse_order(mesh_.rank_at(coordinate));
        step_[axis] = next[d] - first[d];
        axes_[d].push_back(static_cast<int64_t>(axis));
      }
    }
    const auto step = [&](int64_t axis) { return step_[static_cast<size_t>(axis)]; };
    for (size_t d = 0; d < tiles_.size(); ++d) {
      std::sort(axes_[d].begin(), axes_[d].end(), [&](int64_t a, int64_t b) { return step(a) > step(b); });
      int64_t rest = tiles_[d];
      for (const int64_t axis : axes_[d]) {
        if (step(axis) * mesh_.size(axis) != rest) refuse_order(mesh_.rank_at(coordinate));
        rest = step(axis);
      }
      if (rest != 1) refuse_order(mesh_.rank_at(coordinate));
    }
  }

  void check_every_device() const {
    for (int64_t i = 0; i < mesh_.size(); ++i) {
      const Dims coordinate = mesh_.coordinate_at(i);
      const int64_t rank = mesh_.rank_at(coordinate);
      Dims expected(tiles_.size(), 0);
      for (size_t d = 0; d < tiles_.size(); ++d)
        for (const int64_t axis : axes_[d])
          expected[d] += coordinate[static_cast<size_t>(axis)] * step_[static_cast<size_t>(axis)];
      if (tile_of(rank) != expected) refuse_order(rank);
    }
  }

  Placements placements() const {
    Layout layout{mesh_, shape_, Placements(static_cast<size_t>(mesh_.ndim()), Replicate())};
    for (const int64_t axis : axes_.back()) layout.placements[static_cast<size_t>(axis)] = Partial();
    for (size_t d = 0; d < shape_.size(); ++d) {
      const auto dim = static_cast<int64_t>(d);
      for (size_t i = 0; i < axes_[d].size(); ++i) {
        int64_t split = 1;  // the chunks that axes to the right have cut before
        for (size_t k = 0; k < i; ++k)
          if (axes_[d][k] > axes_[d][i]) split *= mesh_.size(axes_[d][k]);
        layout.placements[static_cast<size_t>(axes_[d][i])] =
            split == 1 ? Placement(Shard(dim)) : Placement(StridedShard(dim, split));
      }
      if (!detail::find_difference(layout, dim, axes_[d])) continue;
      // XLA counts the tiles of a few rows in an order in which they seem to be cut otherwise.
      for (const int64_t axis : axes_[d]) layout.placements[static_cast<size_t>(axis)] = Shard(dim);
      if (!detail::find_difference(layout, dim, axes_[d])) continue;
      if (!std::is_sorted(axes_[d].begin(), axes_[d].end()))
        refuse(fmt::format("no placements cut dim {} so: it is uneven, and an axis cuts after one to its right", dim),
               fmt::format("pad dim {} to {}", dim, (shape_[d] / tiles_[d] + 1) * tiles_[d]));
      layout.placements = detail::cut_like_xla(layout, dim, axes_[d]);
    }
    return layout.placements;
  }

  [[noreturn]] void refuse_order(int64_t rank) const {
    refuse(fmt::format("no axes of the mesh make these tiles: rank {} does not fit", rank),
           "a mesh whose axes are those that the sharding was made of");
  }

  [[noreturn]] void refuse(std::string_view problem, std::string_view help) const {
    throw std::invalid_argument(ErrorText(kOperation, problem)
                                    .fact("sharding", to_string(sharding_))
                                    .fact("mesh", to_string(mesh_))
                                    .fact("shape", to_string(shape_))
                                    .help(help));
  }

  const XlaSharding& sharding_;
  const Mesh& mesh_;
  const Dims& shape_;
  std::unordered_map<int64_t, int64_t> position_;  // of a device in the sharding's order
  Dims tiles_;                                     // of each dim, and last the number of parts of a sum
  std::vector<std::vector<int64_t>> axes_;         // that step through tiles_[d], the one of the largest steps first
  std::vector<int64_t> step_;                      // of each axis, in tiles
};

}  // namespace

Placements placements_of(const XlaSharding& sharding, const Mesh& mesh, const Dims& shape) {
  return AxisSearch(sharding, mesh, shape).run();
}

}  // namespace sherd
