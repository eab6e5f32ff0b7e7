#include "plan/transfer.h"

#include <algorithm>
#include <tuple>

#include "plan/places.h"

namespace sherd::plan {
namespace {

void sort(std::vector<Transfer>& list) {
  std::sort(list.begin(), list.end(), [](const Transfer& a, const Transfer& b) {
    return std::tie(a.rank, a.from, a.to) < std::tie(b.rank, b.from, b.to);
  });
}

}  // namespace

Transfers sorted(Transfers transfers) {
  sort(transfers.gives);
  sort(transfers.takes);
  return transfers;
}

std::vector<Transfer> takes_of(const Layout& from, const RankPart& wanted, int64_t turn) {
  std::vector<Transfer> takes;
  if (is_empty(wanted.rows)) return takes;
  for (const Dims& place : places_touched(from, wanted.rows)) {
    const int64_t other = giver(from.mesh, place, {wanted.rank, turn});
    RunGrid rows = intersect(grid_of(from, *from.mesh.coordinate_of(other)), wanted.rows);
    takes.push_back({other, 0, wanted.number, std::move(rows)});
  }
  return takes;
}

Transfers transfers(const Layout& from, const Layout& to, int64_t rank) {
  Transfers result;
  if (const auto here = to.mesh.coordinate_of(rank)) {
    result.takes = takes_of(from, {rank, 0, grid_of(to, *here)}, taker_at(to, *here).turn);
  }
  const auto here = from.mesh.coordinate_of(rank);
  if (!here) return sorted(std::move(result));
  const RunGrid held = grid_of(from, *here);
  if (is_empty(held)) return sorted(std::move(result));
  const Dims mine = place_of(from, *here);  // as a taker sees it: where the rows lie
  for (const Dims& place : places_touched(to, held)) {
    for_each_replica(to.mesh, place, [&](const Dims& there) {
      const Taker taker = taker_at(to, there);
      if (giver(from.mesh, mine, taker) != rank) return;
      result.gives.push_back({taker.rank, 0, 0, intersect(held, grid_of(to, there))});
    });
  }
  return sorted(std::move(result));
}

Transfers transfers(const Layout& from, const std::vector<RankPart>& to, int64_t rank) {
  Transfers result;
  for (const RankPart& part : to) {
    for (Transfer& transfer : takes_of(from, part, part.rank)) {
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
