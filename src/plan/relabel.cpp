#include "plan/relabel.h"

#include <algorithm>
#include <limits>

#include "plan/grid.h"

namespace sherd::plan {
namespace {

constexpr size_t kExactUpTo = 256;

using Matrix = std::vector<std::vector<int64_t>>;

// For each row the column assigned to it, so that the sum of the costs is the least: the Hungarian method, with
// potentials of rows and columns, one shortest path per row. The arrays count from 1; column 0 stands for the row that
// is being assigned.
std::vector<size_t> cheapest_assignment(const Matrix& cost) {
  const size_t n = cost.size();
  std::vector<int64_t> row_potential(n + 1, 0);
  std::vector<int64_t> column_potential(n + 1, 0);
  std::vector<size_t> row_of(n + 1, 0);  // the row assigned to a column, 0 where none is
  for (size_t row = 1; row <= n; ++row) {
    row_of[0] = row;
    std::vector<int64_t> slack(n + 1, std::numeric_limits<int64_t>::max());
    std::vector<size_t> came_from(n + 1, 0);
    std::vector<bool> done(n + 1, false);
    size_t column = 0;
    do {
      done[column] = true;
      const size_t current = row_of[column];
      int64_t step = std::numeric_limits<int64_t>::max();
      size_t next = 0;
      for (size_t c = 1; c <= n; ++c) {
        if (done[c]) continue;
        const int64_t reduced = cost[current - 1][c - 1] - row_potential[current] - column_potential[c];
        if (reduced < slack[c]) {
          slack[c] = reduced;
          came_from[c] = column;
        }
        if (slack[c] < step) {
          step = slack[c];
          next = c;
        }
      }
      for (size_t c = 0; c <= n; ++c) {
        if (done[c]) {
          row_potential[row_of[c]] += step;
          column_potential[c] -= step;
        } else if (slack[c] != std::numeric_limits<int64_t>::max()) {
          slack[c] -= step;
        }
      }
      column = next;
    } while (row_of[column] != 0);
    while (column != 0) {
      row_of[column] = row_of[came_from[column]];
      column = came_from[column];
    }
  }
  std::vector<size_t> assigned(n);
  for (size_t c = 1; c <= n; ++c) assigned[row_of[c] - 1] = c - 1;
  return assigned;
}

// Each rank in turn takes the best place that is left.
std::vector<size_t> greedy_assignment(const std::vector<RunGrid>& held, const std::vector<RunGrid>& wanted) {
  std::vector<size_t> assigned(held.size());
  std::vector<bool> taken(wanted.size(), false);
  for (size_t rank = 0; rank < held.size(); ++rank) {
    int64_t most = -1;
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (taken[place]) continue;
      const int64_t common = overlap(held[rank], wanted[place]);
      // Its own place where that is as good as any.
      if (common > most || (common == most && place == rank)) {
        most = common;
        assigned[rank] = place;
      }
    }
    taken[assigned[rank]] = true;
  }
  return assigned;
}

}  // namespace

Mesh relabel(const Layout& from, const Layout& to) {
  const std::vector<int64_t> ranks = to.mesh.ranks();
  std::vector<RunGrid> held;
  std::vector<RunGrid> wanted;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto here = from.mesh.coordinate_of(ranks[i]);
    // Nothing, of a scalar neither.
    held.push_back(here ? grid_of(from, *here) : RunGrid(std::max<size_t>(to.shape.size(), 1)));
    wanted.push_back(grid_of(to, to.mesh.coordinate_at(static_cast<int64_t>(i))));
  }
  std::vector<size_t> places;
  if (ranks.size() <= kExactUpTo) {
    Matrix received(ranks.size(), std::vector<int64_t>(ranks.size()));
    const auto n = static_cast<int64_t>(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (size_t place = 0; place < ranks.size(); ++place) {
        // Times n + 1, so that of equally good orders the one that leaves most ranks where they are is taken.
        const int64_t lacked = missing(held[rank], wanted[place]);
        received[rank][place] = lacked * (n + 1) + (rank == place ? 0 : 1);
      }
    }
    places = cheapest_assignment(received);
  } else {
    places = greedy_assignment(held, wanted);
  }
  std::vector<int64_t> order(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) order[places[rank]] = ranks[rank];
  return order == ranks ? to.mesh : Mesh(to.mesh.axes(), std::move(order));
}

}  // namespace sherd::plan
