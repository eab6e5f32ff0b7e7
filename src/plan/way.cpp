#include "plan/way.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "plan/axis_groups.h"
#include "plan/grid.h"
#include "plan/placement_lists.h"
#include "plan/talking.h"

namespace sherd::plan {
namespace {

// A stop that may lie on the way.
struct Visited {
  Placements placements = {};
  Cut cut = {};
  uint32_t arrived = 0;             // which of the axes that change are as in the target
  bool gathered = false;            // or whole, to be cut again
  std::vector<RunGrid> grids = {};  // per place, made when they are asked for
  double seconds = std::numeric_limits<double>::infinity();
  size_t before = 0;    // the stop that it is reached from in this time
  double at_least = 0;  // seconds from here to the target
};

class Search {
 public:
  Search(const Placements& goal, const Held& held, const MovingTask& task, Prefer prefer)
      : goal_(goal), held_(held), task_(task), prefer_(prefer), of_(held.layout()), visited_(held) {}

  std::vector<Stop> way() {
    std::vector<Visited> stops = stops_to_goal();
    find_way(stops);
    std::vector<Stop> way;
    for (size_t at = stops.size() - 1; at != 0; at = stops[at].before) {
      way.push_back({std::move(stops[at].placements), std::move(stops[at].cut)});
    }
    std::reverse(way.begin(), way.end());
    return way;
  }

 private:
  // In an order in which no stop leads to an earlier one; the target is the last.
  std::vector<Visited> stops_to_goal() const {
    std::vector<Visited> stops;
    Cut cut = held_.cut();
    stops.push_back({.placements = held_.placements(), .cut = cut});
    while (!cut.sharers.empty()) {  // what was shared last is gathered first
      cut.sharers.pop_back();
      if (cut.sharers.empty()) cut = cut.axes.empty() ? Cut{} : Cut{.target = cut.target, .axes = cut.axes};
      if (held_.placements() != goal_ || !cut.empty()) stops.push_back({.placements = held_.placements(), .cut = cut});
    }
    // Rows that were kept for the target cannot be told by placements before all are there.
    const bool by_axes = cut.empty();
    if (by_axes && prefer_ == Prefer::latency) add_gathered(stops);
    std::vector<size_t> changing;
    for (size_t axis = 0; axis < goal_.size(); ++axis) {
      if (held_.placements()[axis] != goal_[axis]) changing.push_back(axis);
    }
    if (by_axes && changing.size() <= kSearchedAxes) {
      for (uint32_t arrived = 1; arrived + 1 < uint32_t{1} << changing.size(); ++arrived) {
        Visited stop{.placements = held_.placements(), .arrived = arrived};
        for (size_t i = 0; i < changing.size(); ++i) {
          if ((arrived >> i & 1) != 0) stop.placements[changing[i]] = goal_[changing[i]];
        }
        if (are_placements(task_.mesh, task_.shape, stop.placements)) stops.push_back(std::move(stop));
      }
    }
    stops.push_back({.placements = goal_, .arrived = ~uint32_t{0}});
    return stops;
  }

  // The axes that talk made whole, one after the other: the fewest messages, where the target is cut from it.
  void add_gathered(std::vector<Visited>& stops) const {
    const std::vector<int64_t> axes = list_of(task_.mesh, talking_axes(of_, held_.placements(), {}, goal_, {}));
    const auto is_cut = [&](int64_t axis) { return is_shard(goal_[static_cast<size_t>(axis)]); };
    if (std::none_of(axes.begin(), axes.end(), is_cut)) return;  // it is the target
    Placements whole = held_.placements();
    for (size_t i = axes.size(); i-- > 0;) {  // an axis to the right cuts what those to its left have left
      whole[static_cast<size_t>(axes[i])] = Replicate();
      if (!are_placements(task_.mesh, task_.shape, whole)) return;
      stops.push_back({.placements = whole, .gathered = true});
    }
  }

  static bool leads(const Visited& a, const Visited& b) {
    if (a.gathered || b.gathered) return b.gathered ? a.arrived == 0 : b.arrived == ~uint32_t{0};
    return (a.arrived & ~b.arrived) == 0;
  }

  void find_way(std::vector<Visited>& stops) {
    const size_t goal = stops.size() - 1;
    stops[0].seconds = 0;
    for (Visited& stop : stops) {
      if (talking_axes(of_, stop.placements, stop.cut, goal_, {}) != 0) stop.at_least = task_.costs.seconds(1, 0);
    }
    const auto try_edge = [&](size_t a, size_t b) {
      if (!leads(stops[a], stops[b])) return;
      const AxisSet axes = talking_axes(of_, stops[a].placements, stops[a].cut, stops[b].placements, stops[b].cut);
      double seconds = stops[a].seconds + task_.costs.seconds(ranks_along(task_.mesh, axes) - 1, 0);
      if (!is_less(seconds, stops[b].seconds)) return;
      if (!is_less(seconds + stops[b].at_least, stops[goal].seconds)) return;
      if (b != goal && is_too_large(stops[b])) return;
      if (prefer_ != Prefer::latency) {
        const bool direct = a == 0 && b == goal;
        if (!direct && wastes(stops[a], stops[b], stops[goal])) return;
      } else if (axes != 0) {
        const int64_t bytes =
            missing_between(stops[a], stops[b]) * task_.moved_size / static_cast<int64_t>(task_.places.size());
        seconds += static_cast<double>(bytes) * task_.costs.byte;
        if (!is_less(seconds, stops[b].seconds)) return;
      }
      stops[b].seconds = seconds;
      stops[b].before = a;
    };
    try_edge(0, goal);
    for (size_t b = 1; b <= goal; ++b) {
      for (size_t a = 0; a < b; ++a) {
        if (std::isfinite(stops[a].seconds)) try_edge(a, b);
      }
    }
  }

  const RunGrid& grid(Visited& stop, size_t place) {
    if (stop.grids.empty()) stop.grids.resize(task_.places.size());
    RunGrid& grid = stop.grids[place];
    if (grid.empty()) {
      visited_.become(stop.placements, stop.cut);
      grid = visited_.grid(task_.places[place]);
    }
    return grid;
  }

  // What lies between two moves is memory that neither the tensor nor the result has.
  bool is_too_large(Visited& stop) {
    for (size_t place = 0; place < task_.places.size(); ++place) {
      if (numel(grid(stop, place)) * task_.moved_size > task_.staging_bytes) return true;
    }
    return false;
  }

  int64_t missing_between(Visited& a, Visited& b) {
    int64_t elements = 0;
    for (size_t place = 0; place < task_.places.size(); ++place) elements += missing(grid(a, place), grid(b, place));
    return elements;
  }

  // Whether a rank receives what it does not want in the end, or loses what it must receive again.
  bool wastes(Visited& a, Visited& b, Visited& goal) {
    for (size_t place = 0; place < task_.places.size(); ++place) {
      const RunGrid& end = grid(goal, place);
      const int64_t gained = missing(grid(a, place), end) - missing(grid(b, place), end);
      if (missing(grid(a, place), grid(b, place)) != gained) return true;
    }
    return false;
  }

  const Placements& goal_;
  const Held& held_;
  const MovingTask& task_;
  const Prefer prefer_;
  const Layout& of_;
  Held visited_;  // any stop, while it is looked at
};

}  // namespace

std::vector<Stop> way_to(const Placements& goal, const Held& held, const MovingTask& task, Prefer prefer) {
  if (held.placements() == goal && held.cut().empty()) return {};
  const AxisSet talking = talking_axes(held.layout(), held.placements(), held.cut(), goal, {});
  if (prefer == Prefer::simple || std::popcount(talking) < 2) return {{goal, {}}};
  return Search(goal, held, task, prefer).way();
}

}  // namespace sherd::plan
