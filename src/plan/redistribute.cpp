#include "plan/redistribute.h"

#include <fmt/format.h>

#include <algorithm>

namespace sherd::plan {
namespace {

int64_t overlap(const std::vector<Run>& a, const std::vector<Run>& b) {
  int64_t rows = 0;
  for (const Run& x : a) {
    for (const Run& y : b) {
      rows += std::max<int64_t>(0, std::min(x.offset + x.size, y.offset + y.size) - std::max(x.offset, y.offset));
    }
  }
  return rows;
}

int64_t rows_of(const std::vector<Run>& runs) {
  int64_t rows = 0;
  for (const Run& run : runs) rows += run.size;
  return rows;
}

// The elements that the rank at `coordinate` holds under `to` and not under `from`.
int64_t elements_received(const Layout& from, const Layout& to, const Dims& coordinate) {
  int64_t wanted = 1;
  int64_t held = 1;
  for (int64_t d = 0; d < static_cast<int64_t>(from.shape.size()); ++d) {
    const auto target = local_runs(to, d, coordinate);
    wanted *= rows_of(target);
    held *= overlap(local_runs(from, d, coordinate), target);
  }
  return wanted - held;
}

// The average over the mesh's corners: cheap, and enough to compare plans.
int64_t bytes_received(const Layout& from, const Layout& to, int64_t element_size) {
  const auto ndim = static_cast<size_t>(from.mesh.ndim());
  int64_t total = 0;
  const int64_t corners = int64_t{1} << std::min<size_t>(ndim, 4);
  for (int64_t corner = 0; corner < corners; ++corner) {
    Dims coordinate(ndim, 0);
    for (size_t axis = 0; axis < ndim; ++axis) {
      if ((corner >> std::min<size_t>(axis, 3) & 1) != 0)
        coordinate[axis] = from.mesh.size(static_cast<int64_t>(axis)) - 1;
    }
    total += elements_received(from, to, coordinate);
  }
  return total * element_size / corners;
}

bool is_sharded_right_of(const Placements& placements, size_t axis, int64_t dim) {
  for (size_t i = axis + 1; i < placements.size(); ++i) {
    if (sharded_dim(placements[i]) == dim) return true;
  }
  return false;
}

// Cutting a Partial axis where it stands leaves every rank a part of what it has, unless an axis to its right cuts
// the same dim: that one's cuts would move. Cuts chosen by the user count on the axes to their left.
bool can_reduce_scatter(const Placements& now, size_t axis, const Placements& to) {
  const int64_t dim = sharded_dim(to[axis]);
  if (dim < 0 || is_sharded_right_of(now, axis, dim)) return false;
  if (!std::holds_alternative<Ragged>(to[axis])) return true;
  for (size_t i = 0; i < axis; ++i) {
    if ((sharded_dim(to[i]) == dim || sharded_dim(now[i]) == dim) && now[i] != to[i]) return false;
  }
  return true;
}

class Planner {
 public:
  Planner(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from, const Placements& to)
      : mesh_(mesh), shape_(shape), element_size_(element_size), now_(from), to_(to) {}

  Redistribution plan() {
    reduce();
    move();
    keep_one();
    for (const Step& step : result_.steps) result_.bytes += step.bytes;
    return std::move(result_);
  }

 private:
  Layout layout(const Placements& placements) const { return {mesh_, shape_, placements}; }

  int64_t local_bytes() const {
    const Dims first(static_cast<size_t>(mesh_.ndim()), 0);
    return numel(local_shape(layout(now_), first)) * element_size_;
  }

  void add(Action action, std::vector<int64_t> axes, int64_t bytes) {
    result_.steps.push_back({action, std::move(axes), now_, bytes});
  }

  void reduce() {
    for (size_t axis = 0; axis < now_.size(); ++axis) {
      if (!is_partial(now_[axis]) || now_[axis] == to_[axis]) continue;
      const auto number = static_cast<int64_t>(axis);
      const int64_t n = mesh_.size(number);
      const int64_t bytes = local_bytes() * (n - 1) / n;
      if (can_reduce_scatter(now_, axis, to_)) {
        now_[axis] = to_[axis];
        add(Action::reduce_scatter, {number}, bytes);
      } else {
        now_[axis] = Replicate();
        add(Action::all_reduce, {number}, 2 * bytes);
      }
    }
  }

  // What is sharded now becomes what is sharded in the end, in one step.
  void move() {
    Placements target = to_;
    for (size_t axis = 0; axis < target.size(); ++axis) {
      if (is_partial(target[axis])) target[axis] = now_[axis] == to_[axis] ? now_[axis] : Placement(Replicate());
    }
    if (target == now_) return;
    std::vector<int64_t> senders;
    std::vector<int64_t> changed;
    for (const size_t axis : affected(target)) {
      changed.push_back(static_cast<int64_t>(axis));
      if (is_shard(now_[axis]) && mesh_.size(static_cast<int64_t>(axis)) > 1) {
        senders.push_back(static_cast<int64_t>(axis));
      }
    }
    const Layout before = layout(now_);
    now_ = target;
    if (senders.empty()) {
      add(Action::slice, std::move(changed), 0);
    } else {
      add(Action::exchange, std::move(senders), bytes_received(before, layout(target), element_size_));
    }
  }

  // The axes whose boxes change: those with another placement, and those that cut a dim which such an axis cuts.
  std::vector<size_t> affected(const Placements& target) const {
    std::vector<bool> touched(shape_.size(), false);
    for (size_t axis = 0; axis < now_.size(); ++axis) {
      if (now_[axis] == target[axis]) continue;
      for (const Placement* p : {&now_[axis], &target[axis]}) {
        if (is_shard(*p)) touched[static_cast<size_t>(sharded_dim(*p))] = true;
      }
    }
    std::vector<size_t> axes;
    for (size_t axis = 0; axis < now_.size(); ++axis) {
      const auto touches = [&](const Placement& p) {
        return is_shard(p) && touched[static_cast<size_t>(sharded_dim(p))];
      };
      if (now_[axis] != target[axis] || touches(now_[axis])) axes.push_back(axis);
    }
    return axes;
  }

  void keep_one() {
    for (size_t axis = 0; axis < now_.size(); ++axis) {
      if (now_[axis] == to_[axis]) continue;
      now_[axis] = to_[axis];
      add(Action::keep_one, {static_cast<int64_t>(axis)}, 0);
    }
  }

  const Mesh& mesh_;
  const Dims& shape_;
  const int64_t element_size_;
  Placements now_;
  const Placements& to_;
  Redistribution result_;
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
  }
  return "";
}

}  // namespace

Redistribution plan_redistribution(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from,
                                   const Placements& to) {
  return Planner(mesh, shape, element_size, from, to).plan();
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string to_string(const Step& step, const Mesh& mesh) {
  std::string text = name_of(step.action);
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
  return text.empty() ? "nothing to do" : text;
}

}  // namespace sherd::plan
