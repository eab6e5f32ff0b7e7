#include "plan/redistribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "layout/bytes_text.h"
#include "plan/along.h"
#include "plan/crossing.h"
#include "plan/placement_lists.h"
#include "plan/places.h"
#include "plan/recount.h"
#include "sherd/error.h"
#include "sherd/explain.h"

namespace sherd::plan {
namespace {

bool is_in(const std::vector<int64_t>& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// How Partials are reduced on the way.
enum class Reduction : uint8_t {
  whole,    // all_reduce
  scatter,  // reduce_scatter where the target is sharded, all_reduce elsewhere
  share,    // reduce_scatter everywhere; what the target wants whole is gathered afterwards
};

struct Reducing {
  Reduction how = Reduction::scatter;
  bool replicas = false;    // of `share`: ranks that hold the same parts take turns, too
  bool whole_last = false;  // of `share`: the last axes that the target wants whole are reduced by all_reduce
};

// What does not change while plans are compared.
struct Task {
  const Mesh& mesh;
  const Dims& shape;
  int64_t moved_size;  // of an element
  int64_t reduced_size;
  const Placements& from;
  const Placements& to;
  const std::vector<Dims>& places;
  CommCosts costs;
  int64_t staging_bytes;
};

// Sums of costs in another order are the same costs.
bool is_less(double a, double b) { return a < b * (1 - 1e-9); }

struct Candidate {
  Redistribution plan;
  int64_t received = 0;  // bytes, at all measured places: exact where the plan's are an average
  double seconds = 0;

  bool has_fewer(const Candidate& other) const {
    return received != other.received ? received < other.received : is_less(seconds, other.seconds);
  }
};

// With more axes than this there are too many ways to put them together, or in order.
constexpr size_t kSearchedAxes = 4;

using Groups = std::vector<std::vector<int64_t>>;

using Axes = uint64_t;  // a set of them
Axes bit(int64_t axis) { return Axes{1} << axis; }

// The next way to give each of a row of axes a group, groups being numbered as they appear: 000, 001, 010, 011, 012.
bool next_grouping(std::vector<size_t>& group) {
  for (size_t i = group.size(); i-- > 1;) {
    const size_t used = *std::max_element(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(i));
    if (group[i] > used) continue;
    ++group[i];
    std::fill(group.begin() + static_cast<std::ptrdiff_t>(i) + 1, group.end(), 0);
    return true;
  }
  return false;
}

// Which axes are served by one call, so that all calls together cost least: `cost(axes)` is that of one. Of equals the
// one with all in one call.
template <typename Cost>
Groups cheapest_groups(const std::vector<int64_t>& axes, const Cost& cost) {
  Groups best = {axes};
  if (axes.size() < 2) return best;
  double least = cost(axes);
  const auto consider = [&](const std::vector<size_t>& group) {
    Groups groups(*std::max_element(group.begin(), group.end()) + 1);
    for (size_t i = 0; i < axes.size(); ++i) groups[group[i]].push_back(axes[i]);
    double total = 0;
    for (const auto& one : groups) total += cost(one);
    if (!is_less(total, least)) return;
    least = total;
    best = std::move(groups);
  };
  std::vector<size_t> group(axes.size(), 0);
  if (axes.size() > kSearchedAxes) {
    for (size_t i = 0; i < group.size(); ++i) group[i] = i;
    consider(group);
    return best;
  }
  while (next_grouping(group)) consider(group);
  return best;
}

template <typename Cost>
double cost_of(const Groups& groups, const Cost& cost) {
  double total = 0;
  for (const auto& axes : groups) total += axes.empty() ? 0 : cost(axes);
  return total;
}

// Builds one plan, step by step.
class Draft {
 public:
  // `prefer`: bytes, latency or simple.
  Draft(const Task& task, Prefer prefer)
      : task_(task),
        mesh_(task.mesh),
        prefer_(prefer),
        to_(task.to),
        goal_(task.to),
        places_(task.places),
        held_(task.mesh, task.shape, task.from),
        visited_(held_) {
    for (size_t axis = 0; axis < to_.size(); ++axis) {
      if (!is_partial(to_[axis])) continue;
      goal_[axis] = task.from[axis] == to_[axis] ? to_[axis] : Placement(Replicate());
    }
  }

  // The ways to reduce that can be worth comparing. The others differ from these in nothing, or in more bytes alone.
  std::vector<Reducing> reductions() const {
    std::vector<Reducing> ways = {{}};
    const auto axes = reduced_axes();
    if (axes.empty()) return ways;
    const size_t shared = wanted_whole(axes).size();
    const bool replicas = !replica_axes().empty();
    if (prefer_ == Prefer::latency && shared < axes.size()) ways.push_back({Reduction::whole});
    if (shape().empty()) return ways;
    if (shared > 0) ways.push_back({Reduction::share});
    if (shared > 1) ways.push_back({Reduction::share, false, true});
    if (replicas) ways.push_back({Reduction::share, true, false});
    if (replicas && shared > 0) ways.push_back({Reduction::share, true, true});
    return ways;
  }

  Candidate plan(const Reducing& how) {
    if (!reduced_axes().empty()) {
      slice();
      if (how.how == Reduction::share) {
        reduce_shares(how.replicas, how.whole_last);
      } else {
        if (how.how == Reduction::scatter) scatter();
        make_whole();
      }
    }
    move_to_goal();
    return finish();
  }

 private:
  const Placements& now() const { return held_.placements(); }
  const Dims& shape() const { return held_.layout().shape; }

  void add(Action action, std::vector<int64_t> axes, int64_t elements = 0, int64_t messages = 0) {
    const bool reduces = action == Action::all_reduce || action == Action::reduce_scatter;
    const int64_t bytes = elements * (reduces ? task_.reduced_size : task_.moved_size);
    received_ += bytes;
    result_.steps.push_back({action, std::move(axes), held_.placements(), held_.cut(),
                             bytes / static_cast<int64_t>(places_.size()), messages});
  }

  int64_t ranks_along(const std::vector<int64_t>& axes) const {
    int64_t n = 1;
    for (const int64_t axis : axes) n *= mesh_.size(axis);
    return n;
  }

  int64_t ranks_along(Axes axes) const {
    int64_t n = 1;
    for (int64_t axis = 0; axis < mesh_.ndim(); ++axis) n *= (axes & bit(axis)) != 0 ? mesh_.size(axis) : 1;
    return n;
  }

  std::vector<int64_t> list_of(Axes axes) const {
    std::vector<int64_t> list;
    for (int64_t axis = 0; axis < mesh_.ndim(); ++axis) {
      if ((axes & bit(axis)) != 0) list.push_back(axis);
    }
    return list;
  }

  // What a call along these axes costs whose bytes are the same however the axes are grouped: one message to each.
  auto cost_of_call() const {
    return [this](const std::vector<int64_t>& axes) { return task_.costs.seconds(ranks_along(axes) - 1, 0); };
  }
  Groups grouped(const std::vector<int64_t>& axes) const {
    return prefer_ == Prefer::simple ? Groups{axes} : cheapest_groups(axes, cost_of_call());
  }

  // The Partials that must go.
  std::vector<int64_t> reduced_axes() const {
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < now().size(); ++axis) {
      if (is_partial(now()[axis]) && now()[axis] != to_[axis]) axes.push_back(static_cast<int64_t>(axis));
    }
    return axes;
  }

  // Of these axes, those that the target does not shard; and those that it does.
  std::vector<int64_t> wanted_whole(std::vector<int64_t> axes) const {
    std::erase_if(axes, [&](int64_t axis) { return is_shard(goal_[static_cast<size_t>(axis)]); });
    return axes;
  }
  std::vector<int64_t> wanted_in_parts(std::vector<int64_t> axes) const {
    std::erase_if(axes, [&](int64_t axis) { return !is_shard(goal_[static_cast<size_t>(axis)]); });
    return axes;
  }

  // The axes whose ranks hold the same and want the same.
  std::vector<int64_t> replica_axes() const {
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < now().size(); ++axis) {
      const auto number = static_cast<int64_t>(axis);
      if (is_replicate(now()[axis]) && is_replicate(goal_[axis]) && mesh_.size(number) > 1) axes.push_back(number);
    }
    return axes;
  }

  // Of these axes, the first and those that are reduced as it is: one call can serve them.
  std::vector<int64_t> of_one_kind(std::vector<int64_t> axes) const {
    if (axes.empty()) return axes;
    const Placement first = now()[static_cast<size_t>(axes.front())];
    std::erase_if(axes, [&](int64_t axis) { return now()[static_cast<size_t>(axis)] != first; });
    return axes;
  }

  int64_t total(const Held& held) const {
    int64_t elements = 0;
    for (const Dims& place : places_) elements += numel(held.grid(place));
    return elements;
  }

  // True where a rank that keeps the target's rows along `axes` holds what a placement list says: all axes that cut the
  // same dims are as in the target, those that stay being to the left.
  bool is_plain(const std::vector<int64_t>& axes) const {
    for (const int64_t axis : axes) {
      const int64_t dim = sharded_dim(goal_[static_cast<size_t>(axis)]);
      for (size_t other = 0; other < goal_.size(); ++other) {
        if (is_in(axes, static_cast<int64_t>(other))) continue;
        if (sharded_dim(now()[other]) != dim && sharded_dim(goal_[other]) != dim) continue;
        if (now()[other] != goal_[other] || static_cast<int64_t>(other) > axis) return false;
      }
    }
    return true;
  }

  // What is held now, with the target's rows along these axes kept; Partials among them are no more.
  void keep_rows(const std::vector<int64_t>& axes, const std::vector<int64_t>& sharers) {
    Placements after = now();
    for (const auto* list : {&axes, &sharers}) {
      for (const int64_t axis : *list) after[static_cast<size_t>(axis)] = Replicate();
    }
    Cut cut = held_.cut();
    cut.target = goal_;
    cut.axes.insert(cut.axes.end(), axes.begin(), axes.end());
    if (cut.sharers.empty() && sharers.empty() && is_plain(cut.axes)) {
      for (const int64_t axis : cut.axes) after[static_cast<size_t>(axis)] = goal_[static_cast<size_t>(axis)];
      held_.become(std::move(after));
      return;
    }
    if (cut.sharers.empty() && !sharers.empty()) {
      held_.become(after, cut.axes.empty() ? Cut{} : cut);
      const Dims sizes = shape_of(held_.grid(Dims(now().size(), 0)));
      cut.dim = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
    }
    cut.sharers.insert(cut.sharers.end(), sharers.begin(), sharers.end());
    // Rows that are kept by a later call are shared as they will be kept: otherwise a rank would have to reduce rows
    // then that it gave away now.
    cut.later.clear();
    for (size_t axis = 0; axis < after.size() && !cut.sharers.empty(); ++axis) {
      const bool kept_later = is_partial(after[axis]) && after[axis] != to_[axis] && is_shard(goal_[axis]);
      if (kept_later && sharded_dim(goal_[axis]) == cut.dim) cut.later.push_back(static_cast<int64_t>(axis));
    }
    held_.become(std::move(after), std::move(cut));
  }

  // Where the target cuts what is whole now, every rank keeps its part before anything is reduced.
  void slice() {
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < now().size(); ++axis) {
      if (is_replicate(now()[axis]) && is_shard(goal_[axis])) axes.push_back(static_cast<int64_t>(axis));
    }
    if (axes.empty()) return;
    keep_rows(axes, {});
    add(Action::slice, std::move(axes));
  }

  // Partials whose axis the target shards.
  void scatter() {
    while (true) {
      const std::vector<int64_t> axes = of_one_kind(wanted_in_parts(reduced_axes()));
      if (axes.empty()) return;
      for (auto& group : grouped(axes)) reduce_scatter(std::move(group));
    }
  }

  // All Partials. One call over all axes moves less than one call along each, which may take less time.
  void make_whole() {
    while (true) {
      std::vector<int64_t> axes = of_one_kind(reduced_axes());
      if (axes.empty()) return;
      if (prefer_ != Prefer::latency || axes.size() == 1) {
        all_reduce(std::move(axes));
        continue;
      }
      const int64_t elements = total(held_) / static_cast<int64_t>(places_.size());
      const auto cost = [&](const std::vector<int64_t>& along) {
        const int64_t n = ranks_along(along);
        return task_.costs.seconds(2 * (n - 1), 2 * elements * task_.reduced_size * (n - 1) / n);
      };
      for (auto& group : cheapest_groups(axes, cost)) all_reduce(std::move(group));
    }
  }

  // All Partials, each rank getting a share of what the target wants whole.
  void reduce_shares(bool replicas, bool whole_last) {
    std::vector<int64_t> turns;
    if (replicas) {
      // They keep their share before anything is reduced.
      turns = replica_axes();
      keep_rows({}, turns);
      add(Action::slice, turns);
    }
    while (true) {
      const std::vector<int64_t> all = reduced_axes();
      if (all.empty()) return;
      std::vector<int64_t> axes = of_one_kind(all);
      std::vector<int64_t> last;
      if (whole_last && axes.size() == all.size()) last = reduced_whole_in_the_end(axes, turns);
      std::erase_if(axes, [&](int64_t axis) { return is_in(last, axis); });
      if (!axes.empty()) {
        for (auto& group : grouped(axes)) reduce_scatter(std::move(group));
      }
      if (!last.empty()) all_reduce(std::move(last));
    }
  }

  // To scatter and to gather along an axis moves what an all_reduce does, with one call more. This saves it for the
  // axes where that is worth most: an all_reduce that comes before another reduction would move more.
  std::vector<int64_t> reduced_whole_in_the_end(const std::vector<int64_t>& axes,
                                                const std::vector<int64_t>& turns) const {
    const std::vector<int64_t> whole = wanted_whole(axes);
    const auto cost = cost_of_call();
    std::vector<int64_t> gathered_anyway = turns;
    for (size_t axis = 0; axis < goal_.size(); ++axis) {
      if (is_shard(now()[axis]) && is_replicate(goal_[axis])) gathered_anyway.push_back(static_cast<int64_t>(axis));
    }
    std::vector<int64_t> best;
    double least = 0;
    const size_t subsets = size_t{1} << std::min(whole.size(), kSearchedAxes);
    for (size_t subset = 1; subset < subsets; ++subset) {
      std::vector<int64_t> last;
      std::vector<int64_t> gathered = gathered_anyway;
      for (size_t i = 0; i < whole.size(); ++i) {
        const bool is_last = i < kSearchedAxes && (subset >> i & 1) != 0;
        (is_last ? last : gathered).push_back(whole[i]);
      }
      if (last.size() == whole.size() && turns.empty()) continue;  // no shares: Reduction::scatter
      std::vector<int64_t> scattered = axes;
      std::erase_if(scattered, [&](int64_t axis) { return is_in(last, axis); });
      const double time = cost_of(grouped(scattered), cost) + cost_of(grouped(gathered), cost) +
                          task_.costs.seconds(2 * (ranks_along(last) - 1), 0);
      if (!best.empty() && !is_less(time, least)) continue;
      least = time;
      best = std::move(last);
    }
    return best;
  }

  void all_reduce(std::vector<int64_t> axes) {
    const int64_t others = ranks_along(axes) - 1;
    Placements after = now();
    for (const int64_t axis : axes) after[static_cast<size_t>(axis)] = Replicate();
    held_.become(std::move(after), Cut(held_.cut()));
    if (others == 0) {
      add(Action::slice, std::move(axes));  // one part is the whole
      return;
    }
    const int64_t elements = 2 * total(held_) * others / (others + 1);
    add(Action::all_reduce, std::move(axes), elements, 2 * others);
  }

  void reduce_scatter(std::vector<int64_t> axes) {
    const int64_t others = ranks_along(axes) - 1;
    keep_rows(wanted_in_parts(axes), wanted_whole(axes));
    if (others == 0) {
      add(Action::slice, std::move(axes));
      return;
    }
    add(Action::reduce_scatter, std::move(axes), others * total(held_), others);
  }

  // A stop on the way of what is sharded now to what is sharded in the end.
  struct Stop {
    Placements placements = {};
    Cut cut = {};
    uint32_t arrived = 0;             // which of the axes that change are as in the target
    bool gathered = false;            // or whole, to be cut again
    std::vector<RunGrid> grids = {};  // per place, made when they are asked for
    double seconds = std::numeric_limits<double>::infinity();
    size_t before = 0;    // the stop that it is reached from in this time
    double at_least = 0;  // seconds from here to the target
  };

  // What is sharded now becomes what is sharded in the end: in one step, or where several axes talk in the steps that
  // take the least time. With Prefer::bytes, of those whose ranks receive nothing that they do not want.
  void move_to_goal() {
    if (now() == goal_ && held_.cut().empty()) return;
    if (prefer_ == Prefer::simple || std::popcount(talking(now(), held_.cut(), goal_, {})) < 2) {
      move(goal_, {});
      return;
    }
    std::vector<Stop> stops = stops_to_goal();
    find_way(stops);
    std::vector<size_t> way;
    for (size_t at = stops.size() - 1; at != 0; at = stops[at].before) way.push_back(at);
    for (size_t i = way.size(); i-- > 0;) move(stops[way[i]].placements, stops[way[i]].cut);
  }

  // In an order in which no stop leads to an earlier one; the target is the last.
  std::vector<Stop> stops_to_goal() const {
    std::vector<Stop> stops;
    Cut cut = held_.cut();
    stops.push_back({.placements = now(), .cut = cut});
    while (!cut.sharers.empty()) {  // what was shared last is gathered first
      cut.sharers.pop_back();
      if (cut.sharers.empty()) cut = cut.axes.empty() ? Cut{} : Cut{.target = cut.target, .axes = cut.axes};
      if (now() != goal_ || !cut.empty()) stops.push_back({.placements = now(), .cut = cut});
    }
    // Rows that were kept for the target cannot be told by placements before all are there.
    const bool by_axes = cut.empty();
    if (by_axes && prefer_ == Prefer::latency) add_gathered(stops);
    std::vector<size_t> changing;
    for (size_t axis = 0; axis < goal_.size(); ++axis) {
      if (now()[axis] != goal_[axis]) changing.push_back(axis);
    }
    if (by_axes && changing.size() <= kSearchedAxes) {
      for (uint32_t arrived = 1; arrived + 1 < uint32_t{1} << changing.size(); ++arrived) {
        Stop stop{.placements = now(), .arrived = arrived};
        for (size_t i = 0; i < changing.size(); ++i) {
          if ((arrived >> i & 1) != 0) stop.placements[changing[i]] = goal_[changing[i]];
        }
        if (are_placements(mesh_, shape(), stop.placements)) stops.push_back(std::move(stop));
      }
    }
    stops.push_back({.placements = goal_, .arrived = ~uint32_t{0}});
    return stops;
  }

  // The axes that talk made whole, one after the other: the fewest messages, where the target is cut from it.
  void add_gathered(std::vector<Stop>& stops) const {
    const std::vector<int64_t> axes = list_of(talking(now(), {}, goal_, {}));
    if (wanted_in_parts(axes).empty()) return;  // it is the target
    Placements whole = now();
    for (size_t i = axes.size(); i-- > 0;) {  // an axis to the right cuts what those to its left have left
      whole[static_cast<size_t>(axes[i])] = Replicate();
      if (!are_placements(mesh_, shape(), whole)) return;
      stops.push_back({.placements = whole, .gathered = true});
    }
  }

  static bool leads(const Stop& a, const Stop& b) {
    if (a.gathered || b.gathered) return b.gathered ? a.arrived == 0 : b.arrived == ~uint32_t{0};
    return (a.arrived & ~b.arrived) == 0;
  }

  void find_way(std::vector<Stop>& stops) {
    const size_t goal = stops.size() - 1;
    stops[0].seconds = 0;
    for (Stop& stop : stops) {
      if (talking(stop.placements, stop.cut, goal_, {}) != 0) stop.at_least = task_.costs.seconds(1, 0);
    }
    const auto try_edge = [&](size_t a, size_t b) {
      if (!leads(stops[a], stops[b])) return;
      const Axes axes = talking(stops[a].placements, stops[a].cut, stops[b].placements, stops[b].cut);
      double seconds = stops[a].seconds + task_.costs.seconds(ranks_along(axes) - 1, 0);
      if (!is_less(seconds, stops[b].seconds)) return;
      if (!is_less(seconds + stops[b].at_least, stops[goal].seconds)) return;
      if (b != goal && is_too_large(stops[b])) return;
      if (prefer_ != Prefer::latency) {
        const bool direct = a == 0 && b == goal;
        if (!direct && wastes(stops[a], stops[b], stops[goal])) return;
      } else if (axes != 0) {
        const int64_t bytes = missing(stops[a], stops[b]) * task_.moved_size / static_cast<int64_t>(places_.size());
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

  const RunGrid& grid(Stop& stop, size_t place) {
    if (stop.grids.empty()) stop.grids.resize(places_.size());
    RunGrid& grid = stop.grids[place];
    if (grid.empty()) {
      visited_.become(stop.placements, stop.cut);
      grid = visited_.grid(places_[place]);
    }
    return grid;
  }

  // What lies between two moves is memory that neither the tensor nor the result has.
  bool is_too_large(Stop& stop) {
    for (size_t place = 0; place < places_.size(); ++place) {
      if (numel(grid(stop, place)) * task_.moved_size > task_.staging_bytes) return true;
    }
    return false;
  }

  static int64_t missing(const RunGrid& held, const RunGrid& wanted) { return numel(wanted) - overlap(held, wanted); }

  int64_t missing(Stop& a, Stop& b) {
    int64_t elements = 0;
    for (size_t place = 0; place < places_.size(); ++place) elements += missing(grid(a, place), grid(b, place));
    return elements;
  }

  // Whether a rank receives what it does not want in the end, or loses what it must receive again.
  bool wastes(Stop& a, Stop& b, Stop& goal) {
    for (size_t place = 0; place < places_.size(); ++place) {
      const RunGrid& end = grid(goal, place);
      const int64_t gained = missing(grid(a, place), end) - missing(grid(b, place), end);
      if (missing(grid(a, place), grid(b, place)) != gained) return true;
    }
    return false;
  }

  void move(const Placements& target, const Cut& cut) {
    std::vector<int64_t> axes = list_of(talking(now(), held_.cut(), target, cut));
    if (axes.empty()) {
      for (size_t axis = 0; axis < target.size(); ++axis) {
        const auto number = static_cast<int64_t>(axis);
        const bool was_cut = is_in(held_.cut().axes, number) || is_in(held_.cut().sharers, number);
        if (was_cut || now()[axis] != target[axis]) axes.push_back(number);
      }
      held_.become(target, Cut(cut));
      add(Action::slice, std::move(axes));
      return;
    }
    visited_.become(target, Cut(cut));
    int64_t elements = 0;
    for (const Dims& place : places_) elements += missing(held_.grid(place), visited_.grid(place));
    held_.become(target, Cut(cut));
    const int64_t others = ranks_along(axes) - 1;
    add(Action::exchange, std::move(axes), elements, others);
  }

  // The axes whose ranks send each other parts: along them lies all that a rank lacks, and no less of them will do.
  // Asked for every two stops, hence a set of bits.
  Axes talking(const Placements& before, const Cut& cut, const Placements& after, const Cut& cut_after) const {
    Axes talks = 0;
    for (size_t d = 0; d < shape().size(); ++d) talks |= talking(before, after, static_cast<int64_t>(d));
    for (size_t i = cut_after.sharers.size(); i < cut.sharers.size(); ++i) talks |= bit(cut.sharers[i]);
    // The rows that were kept for the target are all that a rank wants of it.
    if (cut_after.axes.empty() && !cut.axes.empty() && after != cut.target) {
      for (const int64_t axis : cut.axes) talks |= bit(axis);
    }
    for (int64_t axis = 0; axis < mesh_.ndim(); ++axis) {
      if (mesh_.size(axis) == 1) talks &= ~bit(axis);
    }
    return talks;
  }

  // Of the axes that cut a dim, the first ones may cut it into the same blocks before and after. Where that is one
  // axis, a rank stays in its block; where it is another, the axis of before leads to the block. Within these blocks
  // the rest changes hands. Rows that a user chose for an axis may lie anywhere, whatever is to its left.
  Axes talking(const Placements& before, const Placements& after, int64_t dim) const {
    const auto& axes = mesh_.axes();
    const auto next = [&](const Placements& placements, size_t axis) {
      while (axis < axes.size() && (axes[axis].size == 1 || sharded_dim(placements[axis]) != dim)) ++axis;
      return axis;
    };
    size_t a = next(before, 0);
    size_t b = next(after, 0);
    Axes leading = 0;
    for (; a < axes.size() && b < axes.size(); a = next(before, a + 1), b = next(after, b + 1)) {
      if (axes[a].size != axes[b].size || before[a] != after[b]) break;
      if (a != b) leading |= bit(static_cast<int64_t>(a));
    }
    bool chosen = false;
    for (size_t axis = b; axis < axes.size(); axis = next(after, axis + 1)) {
      chosen = chosen || std::holds_alternative<Ragged>(after[axis]);
    }
    Axes rest = 0;
    for (size_t axis = a; axis < axes.size(); axis = next(before, axis + 1)) {
      chosen = chosen || std::holds_alternative<Ragged>(before[axis]);
      rest |= bit(static_cast<int64_t>(axis));
    }
    if (!chosen) return leading | rest;
    for (size_t axis = next(before, 0); axis < a; axis = next(before, axis + 1)) {
      rest |= bit(static_cast<int64_t>(axis));
    }
    return rest;
  }

  Candidate finish() {
    for (size_t axis = 0; axis < now().size(); ++axis) {
      if (now()[axis] == to_[axis]) continue;
      Placements after = now();
      after[axis] = to_[axis];
      held_.become(std::move(after));
      add(Action::keep_one, {static_cast<int64_t>(axis)});
    }
    for (const Step& step : result_.steps) {
      result_.bytes += step.bytes;
      result_.messages += step.messages;
    }
    result_.fewest_bytes = result_.bytes;
    result_.its_messages = result_.messages;
    const double time = seconds(result_, task_.costs);
    return {std::move(result_), received_, time};
  }

  const Task& task_;
  const Mesh& mesh_;
  const Prefer prefer_;
  const Placements& to_;
  Placements goal_;  // without the Partials that are made in the end
  const std::vector<Dims>& places_;
  Held held_;
  Held visited_;  // any stop, while it is looked at
  Redistribution result_;
  int64_t received_ = 0;
};

// The plan with the fewest bytes, of equals the fastest; or the fastest.
Candidate best_plan(const Task& task, Prefer prefer) {
  std::optional<Candidate> best;
  for (const Reducing& how : Draft(task, prefer).reductions()) {
    Candidate plan = Draft(task, prefer).plan(how);
    if (!best || (prefer == Prefer::latency ? is_less(plan.seconds, best->seconds) : plan.has_fewer(*best))) {
      best = std::move(plan);
    }
  }
  return std::move(*best);
}

const char* name_of(Action action) {
  switch (action) {
    case Action::all_reduce:
      return "all_reduce";
    case Action::reduce_scatter:
      return "reduce_scatter";
    case Action::exchange:
      return "exchange";
    case Action::slice:
      return "slice";
    case Action::keep_one:
      return "keep_one";
    case Action::cross:
      return "exchange";
    case Action::reduce_to:
      return "reduce";
  }
  return "";
}

}  // namespace

Redistribution plan_redistribution(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from,
                                   const Placements& to, const PlanOptions& options) {
  // Where nothing is moved there is nothing to compare.
  const bool simple = options.prefer == Prefer::simple || sherd::numel(shape) == 0;
  std::vector<Dims> places = measured_places(mesh, simple ? 4 : 16, from, to);
  const bool all_measured = static_cast<int64_t>(places.size()) == mesh.size();
  const int64_t reduced_size = options.reduced_size > 0 ? options.reduced_size : element_size;
  const Task task{mesh, shape, element_size, reduced_size, from, to, places, options.costs, options.staging_bytes};
  if (simple) return Draft(task, Prefer::simple).plan({}).plan;
  Candidate fewest = best_plan(task, Prefer::bytes);
  const Held before(mesh, shape, from);
  constexpr int64_t kCounted = 64;
  constexpr int64_t kLookedAt = 256;
  const auto counted = [&](const Redistribution& plan) {
    return all_measured ? plan : recounted(plan, before, element_size, counted_places(mesh, kCounted));
  };
  // Where a plan wastes bytes at a place that was not measured, it is measured there, too. Each time a way is ruled
  // out. Where the rows do not divide, few places may be such.
  const bool uneven = is_uneven(mesh, shape, from) || is_uneven(mesh, shape, to);
  const std::vector<Dims> everywhere =
      all_measured ? std::vector<Dims>() : counted_places(mesh, uneven ? kLookedAt : kCounted);
  for (size_t left = everywhere.size(); left > 0; --left) {
    const auto place = wasteful_place(fewest.plan, before, everywhere);
    if (!place) break;
    places.push_back(*place);
    fewest = best_plan(task, Prefer::bytes);
  }
  fewest.plan = counted(fewest.plan);
  const bool small = sherd::numel(shape) * element_size < kSmallTensor;
  if (options.prefer == Prefer::bytes || (options.prefer == Prefer::automatic && !small)) return fewest.plan;
  Candidate fastest = best_plan(task, Prefer::latency);
  if (!is_less(fastest.seconds, fewest.seconds)) return fewest.plan;
  fastest.plan = counted(fastest.plan);
  fastest.plan.fewest_bytes = fewest.plan.bytes;
  fastest.plan.its_messages = fewest.plan.messages;
  return fastest.plan;
}

double seconds(const Redistribution& plan, const CommCosts& costs) {
  double total = 0;
  for (const Step& step : plan.steps) total += costs.seconds(step.messages, step.bytes);
  return total;
}

std::string bytes_text(int64_t bytes) { return detail::bytes_text(static_cast<double>(bytes)); }

std::string to_string(const Step& step, const Mesh& mesh) {
  std::string text = name_of(step.action);
  if (step.action == Action::cross || step.action == Action::reduce_to) text += " to " + sherd::to_string(mesh);
  for (const int64_t axis : step.axes) text += "@" + mesh.axis_label(axis);
  return text;
}

std::string to_string(const Redistribution& plan, const Mesh& mesh) {
  std::string text;
  for (const Step& step : plan.steps) {
    if (!text.empty()) text += ", ";
    text += to_string(step, mesh);
    if (step.bytes > 0) text += " " + bytes_text(step.bytes);
  }
  if (plan.bytes > plan.fewest_bytes) {
    text += fmt::format("; {} more than the fewest, for {} messages instead of {}",
                        bytes_text(plan.bytes - plan.fewest_bytes), plan.messages, plan.its_messages);
  }
  return text.empty() ? "nothing to do" : text;
}

}  // namespace sherd::plan

namespace sherd {
namespace {

void check_same_tensor(const TensorText& from, const Mesh& mesh, const TensorText& to, const Mesh& to_mesh) {
  if (from.shape == to.shape && from.dtype == to.dtype) return;
  throw std::invalid_argument(ErrorText("redistribute", "a tensor keeps its shape and its type when it is moved")
                                  .fact("from", to_string(from, mesh))
                                  .fact("to", to_string(to, to_mesh))
                                  .help(to_string(TensorText{from.dtype, from.shape, to.placements}, to_mesh)));
}

plan::PlanOptions options_of(const PlanPreferences& preferences) {
  plan::PlanOptions options{.prefer = plan::Prefer::automatic, .costs = preferences.costs};
  if (preferences.prefer == PlanPreferences::Prefer::bytes) options.prefer = plan::Prefer::bytes;
  if (preferences.prefer == PlanPreferences::Prefer::latency) options.prefer = plan::Prefer::latency;
  return options;
}

}  // namespace

std::string explain_redistribution(const TensorText& from, const TensorText& to, const Mesh& mesh,
                                   const PlanPreferences& preferences) {
  check_same_tensor(from, mesh, to, mesh);
  const Placements before = checked_placements("redistribute", mesh, from.shape, from.placements);
  const Placements after = checked_placements("redistribute", mesh, to.shape, to.placements);
  const auto plan = plan::plan_redistribution(mesh, from.shape, plan::element_size(from.dtype), before, after,
                                              options_of(preferences));
  return to_string(plan, mesh);
}

std::string explain_redistribution(const TensorText& from, const Mesh& mesh, const TensorText& to, const Mesh& to_mesh,
                                   const PlanPreferences& preferences) {
  if (mesh == to_mesh) return explain_redistribution(from, to, mesh, preferences);
  check_same_tensor(from, mesh, to, to_mesh);
  const Layout before{mesh, from.shape, checked_placements("redistribute", mesh, from.shape, from.placements)};
  const Layout after{to_mesh, to.shape, checked_placements("redistribute", to_mesh, to.shape, to.placements)};
  if (after.placements != plan::without_partials(after.placements)) {
    throw std::invalid_argument(
        ErrorText("redistribute", "a tensor cannot be made Partial on another mesh")
            .fact("to", to_string(to, to_mesh))
            .help(to_string(TensorText{to.dtype, to.shape, plan::without_partials(to.placements)}, to_mesh)));
  }
  return to_string(plan::plan_crossing(before, after, plan::element_size(from.dtype), options_of(preferences)),
                   to_mesh);
}

}  // namespace sherd
