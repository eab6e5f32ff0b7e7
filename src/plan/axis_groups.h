#pragma once
// Axes of a mesh whose ranks talk: sets of them, and which of them one call serves.

#include <cstdint>
#include <functional>
#include <vector>

#include "sherd/mesh.h"

namespace sherd::plan {

/// A set of axes, as bits.
using AxisSet = uint64_t;
inline AxisSet bit(int64_t axis) { return AxisSet{1} << axis; }

bool is_in(const std::vector<int64_t>& axes, int64_t axis);
std::vector<int64_t> list_of(const Mesh& mesh, AxisSet axes);
int64_t ranks_along(const Mesh& mesh, const std::vector<int64_t>& axes);
int64_t ranks_along(const Mesh& mesh, AxisSet axes);

/// With more axes than this there are too many ways to put them together, or in order.
inline constexpr size_t kSearchedAxes = 4;

/// Sums of costs in another order are the same costs.
inline bool is_less(double a, double b) { return a < b * (1 - 1e-9); }

using AxisGroups = std::vector<std::vector<int64_t>>;
/// What one call along these axes costs.
using CallCost = std::function<double(const std::vector<int64_t>&)>;

/// Which axes are served by one call, so that all calls together cost least. Of equals the one with all in one call.
AxisGroups cheapest_groups(const std::vector<int64_t>& axes, const CallCost& cost);

double cost_of(const AxisGroups& groups, const CallCost& cost);

}  // namespace sherd::plan
