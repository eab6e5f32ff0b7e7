#include "plan/talking.h"

#include <variant>

namespace sherd::plan {
namespace {

// Of the axes that cut a dim, the first ones may cut it into the same blocks before and after. Where that is one
// axis, a rank stays in its block; where it is another, the axis of before leads to the block. Within these blocks
// the rest changes hands. Rows that a user chose for an axis may lie anywhere, whatever is to its left.
AxisSet talking_in_dim(const Mesh& mesh, const Placements& before, const Placements& after, int64_t dim) {
  const auto& axes = mesh.axes();
  const auto next = [&](const Placements& placements, size_t axis) {
    while (axis < axes.size() && (axes[axis].size == 1 || sharded_dim(placements[axis]) != dim)) ++axis;
    return axis;
  };
  size_t a = next(before, 0);
  size_t b = next(after, 0);
  AxisSet leading = 0;
  for (; a < axes.size() && b < axes.size(); a = next(before, a + 1), b = next(after, b + 1)) {
    if (axes[a].size != axes[b].size || before[a] != after[b]) break;
    if (a != b) leading |= bit(static_cast<int64_t>(a));
  }
  bool chosen = false;
  for (size_t axis = b; axis < axes.size(); axis = next(after, axis + 1)) {
    chosen = chosen || std::holds_alternative<Ragged>(after[axis]);
  }
  AxisSet rest = 0;
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

}  // namespace

AxisSet talking_axes(const Layout& of, const Placements& before, const Cut& cut, const Placements& after,
                     const Cut& cut_after) {
  AxisSet talks = 0;
  for (size_t d = 0; d < of.shape.size(); ++d) talks |= talking_in_dim(of.mesh, before, after, static_cast<int64_t>(d));
  for (size_t i = cut_after.sharers.size(); i < cut.sharers.size(); ++i) talks |= bit(cut.sharers[i]);
  // The rows that were kept for the target are all that a rank wants of it.
  if (cut_after.axes.empty() && !cut.axes.empty() && after != cut.target) {
    for (const int64_t axis : cut.axes) talks |= bit(axis);
  }
  for (int64_t axis = 0; axis < of.mesh.ndim(); ++axis) {
    if (of.mesh.size(axis) == 1) talks &= ~bit(axis);
  }
  return talks;
}

}  // namespace sherd::plan
