#include <algorithm>
#include <limits>
#include <vector>

#include "format/pickle_machine.h"

namespace sherd::format {

// Depth first and without recursion, each container once.
void PickleMachine::check_depth() const {
  if (!graph_.root.is_container()) return;
  struct Visit {
    uint64_t index;
    uint32_t next = 0;
    uint32_t height = 1;
  };
  constexpr uint32_t kOpen = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> heights(graph_.containers_.size(), 0);
  std::vector<Visit> path;
  const auto fail_at = [&](std::string_view problem) {
    throw std::invalid_argument(ErrorText(options_.operation, problem).fact("in", options_.source));
  };
  const auto enter = [&](const Node& node) {
    const uint32_t height = heights[node.index];
    if (height == kOpen) fail_at("a value contains itself");
    if (static_cast<int64_t>(path.size() + std::max(1U, height)) > options_.max_depth)
      fail_at(fmt::format("values lie deeper in one another than {}", options_.max_depth));
    if (height == 0) {
      heights[node.index] = kOpen;
      path.push_back({.index = node.index});
    } else if (!path.empty()) {
      path.back().height = std::max(path.back().height, 1 + height);
    }
  };
  const auto child = [&](Visit& visit) -> const Node* {
    const auto& container = graph_.containers_[visit.index];
    while (visit.next < container.count && !container.items[visit.next].is_container()) ++visit.next;
    if (visit.next < container.count) return &container.items[visit.next];
    const auto extra = graph_.extras_.find(visit.index);
    if (extra == graph_.extras_.end()) return nullptr;
    const Node* const more[] = {&extra->second.keywords, &extra->second.appended, &extra->second.items};
    return visit.next - container.count < 3 ? more[visit.next - container.count] : nullptr;
  };
  enter(graph_.root);
  while (!path.empty()) {
    const Node* const node = child(path.back());
    if (node != nullptr) {
      ++path.back().next;
      if (node->is_container()) enter(*node);
      continue;
    }
    const Visit done = path.back();
    path.pop_back();
    heights[done.index] = done.height;
    if (!path.empty()) path.back().height = std::max(path.back().height, 1 + done.height);
  }
}

}  // namespace sherd::format
