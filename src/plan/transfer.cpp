#include "plan/transfer.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace sherd::plan {
namespace {

// The places of a layout that hold rows of `grid`: coordinates along the axes that cut, -1 along the others.
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

// Calls visit(coordinate) for every place with this coordinate, -1 meaning any.
template <typename Visit>
void for_each_replica(const Mesh& mesh, Dims place, const Visit& visit) {
  std::vector<size_t> any;
  for (size_t axis = 0; axis < place.size(); ++axis) {
    if (place[axis] >= 0) continue;
    any.push_back(axis);
    place[axis] = 0;
  }
  while (true) {
    visit(place);
    size_t i = any.size();
    while (i > 0 && ++place[any[i - 1]] == mesh.axes()[any[i - 1]].size) place[any[--i]] = 0;
    if (i == 0) return;
  }
}

// Of the ranks at a place, the one that gives to `taker`.
int64_t giver(const Mesh& mesh, Dims place, int64_t taker) {
  const auto stands = mesh.coordinate_of(taker);
  int64_t turn = taker;
  for (size_t axis = place.size(); axis-- > 0;) {
    if (place[axis] >= 0) continue;
    const int64_t n = mesh.axes()[axis].size;
    place[axis] = stands ? (*stands)[axis] : turn % n;
    turn /= n;
  }
  return mesh.rank_at(place);
}

bool is_empty(const RunGrid& grid) {
  return std::any_of(grid.begin(), grid.end(), [](const RunList& runs) { return runs.empty(); });
}

void sort(std::vector<Transfer>& list) {
  std::sort(list.begin(), list.end(), [](const Transfer& a, const Transfer& b) {
    return std::tie(a.rank, a.from, a.to) < std::tie(b.rank, b.from, b.to);
  });
}

Transfers sorted(Transfers transfers) {
  sort(transfers.gives);
  sort(transfers.takes);
  return transfers;
}

// What the taker of `wanted` gets from a layout.
void add_takes(const Layout& from, const RankPart& wanted, std::vector<Transfer>& takes) {
  if (is_empty(wanted.rows)) return;
  for (const Dims& place : places_touched(from, wanted.rows)) {
    const int64_t other = giver(from.mesh, place, wanted.rank);
    RunGrid rows = intersect(grid_of(from, *from.mesh.coordinate_of(other)), wanted.rows);
    takes.push_back({other, 0, wanted.number, std::move(rows)});
  }
}

}  // namespace

Transfers transfers(const Layout& from, const Layout& to, int64_t rank) {
  Transfers result;
  if (const auto here = to.mesh.coordinate_of(rank)) add_takes(from, {rank, 0, grid_of(to, *here)}, result.takes);
  const auto here = from.mesh.coordinate_of(rank);
  if (!here) return sorted(std::move(result));
  const RunGrid held = grid_of(from, *here);
  if (is_empty(held)) return sorted(std::move(result));
  Dims mine(here->size(), -1);  // as a taker sees it: where the rows lie
  for (size_t axis = 0; axis < mine.size(); ++axis) {
    if (is_shard(from.placements[axis]) && from.mesh.axes()[axis].size > 1) mine[axis] = (*here)[axis];
  }
  for (const Dims& place : places_touched(to, held)) {
    for_each_replica(to.mesh, place, [&](const Dims& there) {
      const int64_t taker = to.mesh.rank_at(there);
      if (giver(from.mesh, mine, taker) != rank) return;
      result.gives.push_back({taker, 0, 0, intersect(held, grid_of(to, there))});
    });
  }
  return sorted(std::move(result));
}

Transfers transfers(const Layout& from, const std::vector<RankPart>& to, int64_t rank) {
  Transfers result;
  for (const RankPart& part : to) {
    std::vector<Transfer> takes;
    add_takes(from, part, takes);
    for (Transfer& transfer : takes) {
      if (transfer.rank == rank) result.gives.push_back({part.rank, 0, part.number, transfer.rows});
      if (part.rank == rank) result.takes.push_back(std::move(transfer));
    }
  }
  return sorted(std::move(result));
}

Transfers transfers(const std::vector<RankPart>& from, const Layout& to, int64_t rank) {
  Transfers result;
  const auto here = to.mesh.coordinate_of(rank);
  const RunGrid wanted = here ? grid_of(to, *here) : RunGrid();
  for (const RankPart& part : from) {
    if (is_empty(part.rows)) continue;
    if (here) {
      RunGrid rows = intersect(part.rows, wanted);
      if (!is_empty(rows)) result.takes.push_back({part.rank, part.number, 0, std::move(rows)});
    }
    if (part.rank != rank) continue;
    for (const Dims& place : places_touched(to, part.rows)) {
      for_each_replica(to.mesh, place, [&](const Dims& there) {
        result.gives.push_back({to.mesh.rank_at(there), part.number, 0, intersect(part.rows, grid_of(to, there))});
      });
    }
  }
  return sorted(std::move(result));
}

Transfers transfers(const std::vector<RankPart>& from, const std::vector<RankPart>& to, int64_t rank) {
  Transfers result;
  const auto meet = [](const RankPart& held, const RankPart& wanted, int64_t other, std::vector<Transfer>& list) {
    RunGrid rows = intersect(held.rows, wanted.rows);
    if (!is_empty(rows)) list.push_back({other, held.number, wanted.number, std::move(rows)});
  };
  for (const RankPart& held : from) {
    if (held.rank != rank) continue;
    for (const RankPart& wanted : to) meet(held, wanted, wanted.rank, result.gives);
  }
  for (const RankPart& wanted : to) {
    if (wanted.rank != rank) continue;
    for (const RankPart& held : from) meet(held, wanted, held.rank, result.takes);
  }
  return sorted(std::move(result));
}

}  // namespace sherd::plan
