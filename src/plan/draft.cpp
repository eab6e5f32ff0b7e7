#include "plan/draft.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/axis_groups.h"
#include "plan/grid.h"
#include "plan/held.h"
#include "plan/talking.h"
#include "plan/way.h"

namespace sherd::plan {
namespace {

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

bool has_fewer(const Candidate& a, const Candidate& b) {
  return a.received != b.received ? a.received < b.received : is_less(a.seconds, b.seconds);
}

// Builds one plan, step by step.
class Draft {
 public:
  // `prefer`: bytes, latency or simple.
  Draft(const MovingTask& task, Prefer prefer)
      : task_(task),
        mesh_(task.mesh),
        prefer_(prefer),
        to_(task.to),
        goal_(task.to),
        places_(task.places),
        held_(task.mesh, task.shape, task.from) {
    for (size_t axis = 0; axis < to_.size(); ++axis) {
      if (is_partial(to_[axis]) && task.from[axis] != to_[axis]) goal_[axis] = Replicate();
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
    for (const Stop& stop : way_to(goal_, held_, task_, prefer_)) move(stop.placements, stop.cut);
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

  // What a call along these axes costs whose bytes are the same however the axes are grouped: one message to each.
  CallCost cost_of_call() const {
    return [this](const std::vector<int64_t>& axes) { return task_.costs.seconds(ranks_along(mesh_, axes) - 1, 0); };
  }
  AxisGroups grouped(const std::vector<int64_t>& axes) const {
    return prefer_ == Prefer::simple ? AxisGroups{axes} : cheapest_groups(axes, cost_of_call());
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
        const int64_t n = ranks_along(mesh_, along);
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
                          task_.costs.seconds(2 * (ranks_along(mesh_, last) - 1), 0);
      if (!best.empty() && !is_less(time, least)) continue;
      least = time;
      best = std::move(last);
    }
    return best;
  }

  void all_reduce(std::vector<int64_t> axes) {
    const int64_t others = ranks_along(mesh_, axes) - 1;
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
    const int64_t others = ranks_along(mesh_, axes) - 1;
    keep_rows(wanted_in_parts(axes), wanted_whole(axes));
    if (others == 0) {
      add(Action::slice, std::move(axes));
      return;
    }
    add(Action::reduce_scatter, std::move(axes), others * total(held_), others);
  }

  void move(const Placements& target, const Cut& cut) {
    std::vector<int64_t> axes = list_of(mesh_, talking_axes(held_.layout(), now(), held_.cut(), target, cut));
    Held next = held_;
    next.become(target, Cut(cut));
    if (axes.empty()) {
      for (size_t axis = 0; axis < target.size(); ++axis) {
        const auto number = static_cast<int64_t>(axis);
        const bool was_cut = is_in(held_.cut().axes, number) || is_in(held_.cut().sharers, number);
        if (was_cut || now()[axis] != target[axis]) axes.push_back(number);
      }
      held_ = std::move(next);
      add(Action::slice, std::move(axes));
      return;
    }
    int64_t elements = 0;
    for (const Dims& place : places_) elements += missing(held_.grid(place), next.grid(place));
    held_ = std::move(next);
    const int64_t others = ranks_along(mesh_, axes) - 1;
    add(Action::exchange, std::move(axes), elements, others);
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

  const MovingTask& task_;
  const Mesh& mesh_;
  const Prefer prefer_;
  const Placements& to_;
  Placements goal_;  // without the Partials that are made in the end
  const std::vector<Dims>& places_;
  Held held_;
  Redistribution result_;
  int64_t received_ = 0;
};

}  // namespace

Redistribution simple_plan(const MovingTask& task) { return Draft(task, Prefer::simple).plan({}).plan; }

Candidate best_plan(const MovingTask& task, Prefer prefer) {
  std::optional<Candidate> best;
  for (const Reducing& how : Draft(task, prefer).reductions()) {
    Candidate plan = Draft(task, prefer).plan(how);
    if (!best || (prefer == Prefer::latency ? is_less(plan.seconds, best->seconds) : has_fewer(plan, *best))) {
      best = std::move(plan);
    }
  }
  return std::move(*best);
}

}  // namespace sherd::plan
