#include "plan/axis_groups.h"

#include <algorithm>

namespace sherd::plan {
namespace {

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

}  // namespace

bool is_in(const std::vector<int64_t>& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

std::vector<int64_t> list_of(const Mesh& mesh, AxisSet axes) {
  std::vector<int64_t> list;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if ((axes & bit(axis)) != 0) list.push_back(axis);
  }
  return list;
}

int64_t ranks_along(const Mesh& mesh, const std::vector<int64_t>& axes) {
  int64_t n = 1;
  for (const int64_t axis : axes) n *= mesh.size(axis);
  return n;
}

int64_t ranks_along(const Mesh& mesh, AxisSet axes) {
  int64_t n = 1;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) n *= (axes & bit(axis)) != 0 ? mesh.size(axis) : 1;
  return n;
}

AxisGroups cheapest_groups(const std::vector<int64_t>& axes, const CallCost& cost) {
  AxisGroups best = {axes};
  if (axes.size() < 2) return best;
  double least = cost(axes);
  const auto consider = [&](const std::vector<size_t>& group) {
    AxisGroups groups(*std::max_element(group.begin(), group.end()) + 1);
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

double cost_of(const AxisGroups& groups, const CallCost& cost) {
  double total = 0;
  for (const auto& axes : groups) total += axes.empty() ? 0 : cost(axes);
  return total;
}

}  // namespace sherd::plan
