#include "plan/redistribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "layout/bytes_text.h"
#include "plan/along.h"
#include "plan/crossing.h"
#include "plan/placement_lists.h"
#include "plan/places.h"
#include "sherd/error.h"
#include "sherd/explain.h"

namespace sherd::plan {
namespace {

bool is_in(const std::vector<int64_t>& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// How Partials are reduced on the way.
enum class Reduction : uint8_t {
  whole,           // all_reduce
  scatter,         // reduce_scatter where the target is sharded, all_reduce elsewhere
  share,           // reduce_scatter everywhere; what the target wants whole is gathered afterwards
  share_replicas,  // the same, ranks that hold the same parts taking turns, too
};

struct Candidate {
  Redistribution plan;
  int64_t elements = 0;  // received at all measured places: exact where the plan's bytes are an average

  bool has_fewer(const Candidate& other) const {
    return elements != other.elements ? elements < other.elements : plan.messages < other.plan.messages;
  }
};

// Builds one plan, step by step.
class Draft {
 public:
  Draft(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from, const Placements& to,
        const std::vector<Dims>& places)
      : mesh_(mesh),
        element_size_(element_size),
        to_(to),
        goal_(to),
        places_(places),
        held_(mesh, shape, from),
        wanted_{without_ranks(mesh), shape, {}} {
    for (size_t axis = 0; axis < to.size(); ++axis) {
      if (!is_partial(to[axis])) continue;
      goal_[axis] = from[axis] == to[axis] ? to[axis] : Placement(Replicate());
    }
    wanted_.placements = goal_;
  }

  bool has_reductions() const { return !reduced_axes(false).empty(); }

  // Whether several axes change, so that moving one after the other differs from moving all at once.
  std::vector<int64_t> changed_axes() const {
    std::vector<int64_t> changed;
    for (size_t axis = 0; axis < goal_.size(); ++axis) {
      if (held_.placements()[axis] != goal_[axis]) changed.push_back(static_cast<int64_t>(axis));
    }
    return changed;
  }

  Candidate plan(Reduction how) {
    if (has_reductions()) {
      slice();
      reduce(how);
    }
    move(goal_);
    return finish();
  }

  // Moves one axis after the other, in this order. Nothing where a stop on the way cannot be.
  std::optional<Candidate> plan_by_axes(const std::vector<int64_t>& order) {
    Placements next = held_.placements();
    for (const int64_t axis : order) {
      next[static_cast<size_t>(axis)] = goal_[static_cast<size_t>(axis)];
      if (!are_placements(mesh_, shape(), next)) return std::nullopt;
      move(next);
    }
    return finish();
  }

  // Makes the axes that change whole, one after the other, and cuts what is there: the fewest messages.
  std::optional<Candidate> plan_by_gathering(const std::vector<int64_t>& axes) {
    Placements next = held_.placements();
    for (size_t i = axes.size(); i-- > 0;) {  // an axis to the right cuts what those to its left have left
      Placement& p = next[static_cast<size_t>(axes[i])];
      if (!is_shard(p)) continue;
      p = Replicate();
      if (!are_placements(mesh_, shape(), next)) return std::nullopt;
      move(next);
    }
    move(goal_);
    return finish();
  }

 private:
  const Placements& now() const { return held_.placements(); }
  const Dims& shape() const { return held_.layout().shape; }

  void add(Action action, std::vector<int64_t> axes, int64_t elements = 0, int64_t messages = 0) {
    const int64_t bytes = elements * element_size_ / static_cast<int64_t>(places_.size());
    elements_ += elements;
    result_.steps.push_back({action, std::move(axes), held_.placements(), held_.cut(), bytes, messages});
  }

  int64_t ranks_along(const std::vector<int64_t>& axes) const {
    int64_t n = 1;
    for (const int64_t axis : axes) n *= mesh_.size(axis);
    return n;
  }

  // The Partials that must go; those whose axis the target shards, or all.
  std::vector<int64_t> reduced_axes(bool sharded_in_the_end) const {
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < now().size(); ++axis) {
      if (!is_partial(now()[axis]) || now()[axis] == to_[axis]) continue;
      if (!sharded_in_the_end || is_shard(goal_[axis])) axes.push_back(static_cast<int64_t>(axis));
    }
    return axes;
  }

  // Of these axes, the first and those that are reduced as it is: one call can serve them.
  std::vector<int64_t> of_one_kind(std::vector<int64_t> axes) const {
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
    return held_.cut().empty();
  }

  // What is held now, with the target's rows along these axes kept; Partials among them are no more.
  void keep_rows(const std::vector<int64_t>& axes, const std::vector<int64_t>& sharers) {
    Placements after = now();
    for (const auto* list : {&axes, &sharers}) {
      for (const int64_t axis : *list) after[static_cast<size_t>(axis)] = Replicate();
    }
    if (sharers.empty() && is_plain(axes)) {
      for (const int64_t axis : axes) after[static_cast<size_t>(axis)] = goal_[static_cast<size_t>(axis)];
      held_.become(std::move(after));
      return;
    }
    Cut cut = held_.cut();
    cut.target = goal_;
    cut.axes.insert(cut.axes.end(), axes.begin(), axes.end());
    cut.sharers.insert(cut.sharers.end(), sharers.begin(), sharers.end());
    if (cut.dim < 0 && !sharers.empty()) {
      held_.become(after, cut.axes.empty() ? Cut{} : Cut{goal_, cut.axes, {}, -1});
      const Dims sizes = shape_of(held_.grid(Dims(now().size(), 0)));
      cut.dim = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
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

  void reduce(Reduction how) {
    bool replicas = how == Reduction::share_replicas;
    while (true) {
      std::vector<int64_t> axes = reduced_axes(how == Reduction::scatter);
      if (axes.empty()) break;
      axes = of_one_kind(std::move(axes));
      if (how == Reduction::whole) {
        all_reduce(std::move(axes));
      } else {
        reduce_scatter(std::move(axes), std::exchange(replicas, false));
      }
    }
    if (how == Reduction::scatter) reduce(Reduction::whole);
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

  void reduce_scatter(std::vector<int64_t> axes, bool replicas) {
    std::vector<int64_t> kept;
    std::vector<int64_t> sharers;
    if (replicas) {
      sharers = replica_axes();
      // They keep their share before anything is reduced.
      keep_rows({}, sharers);
      add(Action::slice, sharers);
      sharers.clear();
    }
    for (const int64_t axis : axes) (is_shard(goal_[static_cast<size_t>(axis)]) ? kept : sharers).push_back(axis);
    const int64_t others = ranks_along(axes) - 1;
    keep_rows(kept, sharers);
    if (others == 0) {
      add(Action::slice, std::move(axes));
      return;
    }
    add(Action::reduce_scatter, std::move(axes), others * total(held_), others);
  }

 public:
  // The axes whose ranks hold the same and want the same.
  std::vector<int64_t> replica_axes() const {
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < now().size(); ++axis) {
      const auto number = static_cast<int64_t>(axis);
      if (is_replicate(now()[axis]) && is_replicate(goal_[axis]) && mesh_.size(number) > 1) axes.push_back(number);
    }
    return axes;
  }

 private:
  // What is sharded now becomes what is sharded in the end, in one step.
  void move(const Placements& target) {
    if (target == now() && held_.cut().empty()) return;
    const std::vector<int64_t> axes = affected(target);
    std::vector<int64_t> senders;
    for (const int64_t axis : axes) {
      const bool cut = is_in(held_.cut().axes, axis) || is_in(held_.cut().sharers, axis);
      if ((cut || is_shard(now()[static_cast<size_t>(axis)])) && mesh_.size(axis) > 1) senders.push_back(axis);
    }
    wanted_.placements = target;
    int64_t missing = 0;
    for (const Dims& place : places_) {
      if (senders.empty()) break;
      const RunGrid wanted = grid_of(wanted_, place);
      missing += numel(wanted) - overlap(held_.grid(place), wanted);
    }
    held_.become(target);
    if (senders.empty()) {
      add(Action::slice, axes);
    } else {
      const int64_t others = ranks_along(senders) - 1;
      add(Action::exchange, std::move(senders), missing, others);
    }
  }

  // The axes whose parts change: those with another placement, and those that cut a dim which such an axis cuts.
  std::vector<int64_t> affected(const Placements& target) const {
    std::vector<bool> touched(shape().size(), false);
    const auto touch = [&](const Placement& p) {
      if (is_shard(p)) touched[static_cast<size_t>(sharded_dim(p))] = true;
    };
    const Cut& cut = held_.cut();
    const auto changes = [&](size_t axis) {
      const auto number = static_cast<int64_t>(axis);
      return now()[axis] != target[axis] || is_in(cut.axes, number) || is_in(cut.sharers, number);
    };
    for (size_t axis = 0; axis < now().size(); ++axis) {
      if (!changes(axis)) continue;
      touch(now()[axis]);
      touch(target[axis]);
    }
    if (cut.dim >= 0) touched[static_cast<size_t>(cut.dim)] = true;
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < now().size(); ++axis) {
      const Placement& p = now()[axis];
      const bool cuts_touched = is_shard(p) && touched[static_cast<size_t>(sharded_dim(p))];
      if (changes(axis) || cuts_touched) axes.push_back(static_cast<int64_t>(axis));
    }
    return axes;
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
    return {std::move(result_), elements_};
  }

  const Mesh& mesh_;
  const int64_t element_size_;
  const Placements& to_;
  Placements goal_;  // without the Partials that are made in the end
  const std::vector<Dims>& places_;
  Held held_;
  Layout wanted_;
  Redistribution result_;
  int64_t elements_ = 0;
};

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
  const std::vector<Dims> places = measured_places(mesh, options.prefer == Prefer::simple ? 4 : 16);
  const auto draft = [&] { return Draft(mesh, shape, element_size, from, to, places); };
  const Draft first = draft();
  if (options.prefer == Prefer::simple) return draft().plan(Reduction::scatter).plan;
  std::vector<Candidate> plans;
  plans.push_back(draft().plan(Reduction::scatter));
  if (first.has_reductions()) {
    plans.push_back(draft().plan(Reduction::whole));
    if (!shape.empty()) {
      plans.push_back(draft().plan(Reduction::share));
      if (!first.replica_axes().empty()) plans.push_back(draft().plan(Reduction::share_replicas));
    }
  }
  const Candidate* best = &plans.front();
  for (const Candidate& candidate : plans) {
    if (candidate.has_fewer(*best)) best = &candidate;
  }
  const bool small = sherd::numel(shape) * element_size < kSmallTensor;
  if (options.prefer == Prefer::bytes || (options.prefer == Prefer::automatic && !small)) return best->plan;
  const int64_t fewest_bytes = best->plan.bytes;
  const int64_t its_messages = best->plan.messages;
  std::vector<int64_t> order = first.changed_axes();
  if (!first.has_reductions() && order.size() > 1 && order.size() <= 4) {
    if (auto plan = draft().plan_by_gathering(order)) plans.push_back(std::move(*plan));
    do {
      if (auto plan = draft().plan_by_axes(order)) plans.push_back(std::move(*plan));
    } while (std::next_permutation(order.begin(), order.end()));
  }
  best = &plans.front();
  for (const Candidate& candidate : plans) {
    if (seconds(candidate.plan, options.costs) < seconds(best->plan, options.costs)) best = &candidate;
  }
  Redistribution result = best->plan;
  result.fewest_bytes = fewest_bytes;
  result.its_messages = its_messages;
  return result;
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

}  // namespace

std::string explain_redistribution(const TensorText& from, const TensorText& to, const Mesh& mesh,
                                   const CommCosts& costs) {
  check_same_tensor(from, mesh, to, mesh);
  const Placements before = checked_placements("redistribute", mesh, from.shape, from.placements);
  const Placements after = checked_placements("redistribute", mesh, to.shape, to.placements);
  const auto plan =
      plan::plan_redistribution(mesh, from.shape, plan::element_size(from.dtype), before, after, {.costs = costs});
  return to_string(plan, mesh);
}

std::string explain_redistribution(const TensorText& from, const Mesh& mesh, const TensorText& to, const Mesh& to_mesh,
                                   const CommCosts& costs) {
  if (mesh == to_mesh) return explain_redistribution(from, to, mesh, costs);
  check_same_tensor(from, mesh, to, to_mesh);
  const Layout before{mesh, from.shape, checked_placements("redistribute", mesh, from.shape, from.placements)};
  const Layout after{to_mesh, to.shape, checked_placements("redistribute", to_mesh, to.shape, to.placements)};
  if (after.placements != plan::without_partials(after.placements)) {
    throw std::invalid_argument(
        ErrorText("redistribute", "a tensor cannot be made Partial on another mesh")
            .fact("to", to_string(to, to_mesh))
            .help(to_string(TensorText{to.dtype, to.shape, plan::without_partials(to.placements)}, to_mesh)));
  }
  return to_string(plan::plan_crossing(before, after, plan::element_size(from.dtype), {.costs = costs}), to_mesh);
}

}  // namespace sherd
