#include "plan/places.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace sherd::plan {

Dims place_of(const Layout& layout, const Dims& coordinate) {
  Dims place(coordinate.size(), -1);
  for (size_t axis = 0; axis < place.size(); ++axis) {
    if (is_shard(layout.placements[axis]) && layout.mesh.axes()[axis].size > 1) place[axis] = coordinate[axis];
  }
  return place;
}

std::vector<Dims> places_touched(const Layout& layout, const RunGrid& grid) {
  std::vector<Dims> places = {Dims(static_cast<size_t>(layout.mesh.ndim()), -1)};
  for (size_t d = 0; d < grid.size(); ++d) {
    std::vector<Dims> along;  // the coordinates of those that hold rows of this dim
    for (const Run& run : grid[d]) {
      for (int64_t row = run.offset; row < run.offset + run.size;) {
        Holder holder = holder_of(layout, static_cast<int64_t>(d), row);
        row = holder.end;
        along.push_back(std::move(holder.coordinate));
      }
    }
    std::sort(along.begin(), along.end());
    along.erase(std::unique(along.begin(), along.end()), along.end());
    std::vector<Dims> further;
    for (const Dims& place : places) {
      for (const Dims& there : along) {
        further.push_back(place);
        for (size_t axis = 0; axis < there.size(); ++axis) {
          if (there[axis] >= 0) further.back()[axis] = there[axis];
        }
      }
    }
    places = std::move(further);
  }
  return places;
}

Taker taker_at(const Layout& to, const Dims& coordinate) {
  int64_t place = 0;
  int64_t replica = 0;
  int64_t replicas = 1;
  for (size_t axis = 0; axis < coordinate.size(); ++axis) {
    const int64_t n = to.mesh.axes()[axis].size;
    if (is_shard(to.placements[axis])) {
      place = place * n + coordinate[axis];
    } else {
      replica = replica * n + coordinate[axis];
      replicas *= n;
    }
  }
  return {to.mesh.rank_at(coordinate), place * replicas + replica};
}

namespace {

// Closes what a place leaves open for a taker that stands at a coordinate of the mesh, or nowhere in it.
void close_for(const Mesh& mesh, Dims& place, const std::optional<Dims>& stands, int64_t turn) {
  for (size_t axis = place.size(); axis-- > 0;) {
    if (place[axis] >= 0) continue;
    const int64_t n = mesh.axes()[axis].size;
    place[axis] = stands ? (*stands)[axis] : turn % n;
    turn /= n;
  }
}

}  // namespace

int64_t giver(const Mesh& mesh, Dims place, const Taker& taker) {
  close_for(mesh, place, mesh.coordinate_of(taker.rank), taker.turn);
  return mesh.rank_at(place);
}

int64_t most_times_given(const Layout& from, const Layout& to) {
  int64_t wanting = 1;  // ranks of one place
  for (size_t axis = 0; axis < to.placements.size(); ++axis) {
    if (!is_shard(to.placements[axis])) wanting *= to.mesh.axes()[axis].size;
  }
  Dims open(from.placements.size(), 0);  // the axes whose ranks have the same
  int64_t having = 1;
  for (size_t axis = 0; axis < open.size(); ++axis) {
    if (!is_replicate(from.placements[axis])) continue;
    open[axis] = -1;
    having *= from.mesh.axes()[axis].size;
  }
  if (wanting == 1 || having == 1) return wanting;
  std::unordered_map<int64_t, int64_t> index_of;  // of ranks, in a mesh that may name them in any order
  if (!from.mesh.has_default_ranks()) {
    const std::vector<int64_t> ranks = from.mesh.ranks();
    for (size_t i = 0; i < ranks.size(); ++i) index_of[ranks[i]] = static_cast<int64_t>(i);
  }
  const auto stands_at = [&](int64_t rank) -> std::optional<Dims> {
    if (from.mesh.has_default_ranks()) return from.mesh.coordinate_of(rank);
    const auto found = index_of.find(rank);
    return found == index_of.end() ? std::nullopt : std::optional(from.mesh.coordinate_at(found->second));
  };
  std::unordered_map<int64_t, int64_t> given;  // by the place that wants, and who of those that have gives
  int64_t most = 1;
  for (int64_t i = 0; i < to.mesh.size(); ++i) {
    const Taker taker = taker_at(to, to.mesh.coordinate_at(i));
    Dims who = open;
    close_for(from.mesh, who, stands_at(taker.rank), taker.turn);
    int64_t key = taker.turn / wanting;
    for (size_t axis = 0; axis < who.size(); ++axis) key = key * from.mesh.axes()[axis].size + who[axis];
    most = std::max(most, ++given[key]);
  }
  return most;
}

namespace {

// Along an axis of n ranks, where most of the rows are that a user chose for it; `otherwise` where none did. What axes
// to the left have cut has cuts of its own, one after the other.
int64_t most_rows_at(const Placement& placement, int64_t n, int64_t otherwise) {
  const auto* ragged = std::get_if<Ragged>(&placement);
  if (ragged == nullptr) return otherwise;
  size_t most = 0;
  const auto rows = [&](size_t i) { return ragged->cuts[i + 1] - ragged->cuts[i]; };
  for (size_t i = 1; i + 1 < ragged->cuts.size(); ++i) {
    if (rows(i) > rows(most)) most = i;
  }
  return static_cast<int64_t>(most) % n;
}

}  // namespace

std::vector<Dims> measured_places(const Mesh& mesh, int64_t exact_up_to, const Placements& from, const Placements& to) {
  std::vector<Dims> places;
  if (mesh.size() <= exact_up_to) {
    for (int64_t i = 0; i < mesh.size(); ++i) places.push_back(mesh.coordinate_at(i));
    return places;
  }
  const auto ndim = static_cast<size_t>(mesh.ndim());
  for (int64_t corner = 0; corner < int64_t{1} << std::min<size_t>(ndim, 4); ++corner) {
    Dims place(ndim, 0);
    for (size_t axis = 0; axis < ndim; ++axis) {
      const bool far = (corner >> std::min<size_t>(axis, 3) & 1) != 0;
      const int64_t n = mesh.size(static_cast<int64_t>(axis));
      place[axis] = far ? most_rows_at(to[axis], n, n - 1) : most_rows_at(from[axis], n, 0);
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<Dims> counted_places(const Mesh& mesh, int64_t most) {
  std::vector<Dims> places;
  for (int64_t i = 0; i < std::min(mesh.size(), most); ++i) {
    // Places that lie anywhere, the same in every process.
    const uint64_t anywhere = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ULL >> 16;
    const bool all = mesh.size() <= most;
    places.push_back(mesh.coordinate_at(all ? i : static_cast<int64_t>(anywhere % static_cast<uint64_t>(mesh.size()))));
  }
  return places;
}

bool is_uneven(const Mesh& mesh, const Dims& shape, const Placements& placements) {
  std::vector<int64_t> parts(shape.size(), 1);
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const int64_t dim = sharded_dim(placements[axis]);
    if (dim < 0) continue;
    if (std::holds_alternative<Ragged>(placements[axis])) return true;
    parts[static_cast<size_t>(dim)] *= mesh.axes()[axis].size;
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] % parts[d] != 0) return true;
  }
  return false;
}

bool is_empty(const RunGrid& grid) {
  return std::any_of(grid.begin(), grid.end(), [](const RunList& runs) { return runs.empty(); });
}

}  // namespace sherd::plan
