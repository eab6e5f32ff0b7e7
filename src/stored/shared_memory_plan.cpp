#include "stored/shared_memory_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "stored/copy_elements.h"
#include "stored/read_elements.h"

namespace sherd::stored {
namespace {

struct Member {
  const ChosenTensor* tensor;
  int64_t begin;  // of its elements in the memory
  int64_t end;
  bool dense;  // it has all of them, in row-major order
};

// Nothing for a tensor without elements, and where numbers are too large to be true.
std::optional<Member> member_of(const ChosenTensor& tensor) {
  const Dims& sizes = tensor.content->size;
  if (!tensor.shared || numel(sizes) == 0) return std::nullopt;
  int64_t end = 0;
  bool too_large = __builtin_add_overflow(tensor.shared->offset, 1, &end);
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t reach = 0;
    too_large |= __builtin_mul_overflow(sizes[d] - 1, tensor.shared->strides[d], &reach);
    too_large |= __builtin_add_overflow(end, reach, &end);
  }
  int64_t bytes = 0;
  too_large |= __builtin_mul_overflow(end, size_of(tensor.content->dtype), &bytes);
  if (too_large) return std::nullopt;
  return Member{&tensor, tensor.shared->offset, end, is_row_major(sizes, tensor.shared->strides)};
}

// A stretch of a memory that is filled by its dense members.
struct Stretch {
  int64_t begin;
  int64_t end;
  MemoryPlan plan;

  void extend(const Member& member) {
    const int64_t known = end - member.begin;
    for_each_box(member.tensor->content->size, known, member.end - member.begin,
                 [&](const Box& box, int64_t) { plan.pieces.push_back(member.tensor->elements(box)); });
    end = member.end;
  }
  bool has(const Member& member) const { return begin <= member.begin && member.end <= end; }
};

std::vector<Stretch> stretches_of(std::vector<Member> members) {
  std::erase_if(members, [](const Member& member) { return !member.dense; });
  std::ranges::stable_sort(members, {}, [](const Member& member) { return std::pair(member.begin, -member.end); });
  std::vector<Stretch> stretches;
  for (const Member& member : members) {
    if (stretches.empty() || member.begin > stretches.back().end) {
      stretches.push_back({member.begin, member.begin, {}});
    }
    if (member.end > stretches.back().end) stretches.back().extend(member);
  }
  return stretches;
}

MemoryPlan alone(const ChosenTensor& tensor) {
  return {tensor.bytes(), {tensor.whole()}, {{&tensor, 0, row_major(tensor.content->size)}}};
}

class Planner {
 public:
  void add_memory(const std::vector<Member>& members) {
    std::vector<Stretch> stretches = stretches_of(members);
    std::map<std::tuple<int64_t, Dims, Dims>, MemoryPlan> same;  // views that nothing fills, by what they see
    for (const Member& member : members) {
      const Dims& strides = member.tensor->shared->strides;
      const auto after = std::ranges::upper_bound(stretches, member.begin, {}, &Stretch::begin);
      const auto found = after == stretches.begin() ? after : std::prev(after);
      if (found != stretches.end() && found->has(member)) {
        found->plan.views.push_back({member.tensor, member.begin - found->begin, strides});
        continue;
      }
      const auto [known, is_new] = same.try_emplace({member.begin, member.tensor->content->size, strides});
      if (is_new) {
        known->second = alone(*member.tensor);
      } else {
        MemoryPlan::View view = known->second.views.front();
        view.tensor = member.tensor;
        known->second.views.push_back(std::move(view));
      }
    }
    for (Stretch& stretch : stretches) {
      const int64_t size = size_of(stretch.plan.views.front().tensor->content->dtype);
      stretch.plan.bytes = (stretch.end - stretch.begin) * size;
      add(std::move(stretch.plan));
    }
    for (auto& [seen, plan] : same) add(std::move(plan));
  }

  void add(MemoryPlan plan) { plans_.push_back(std::move(plan)); }

  std::vector<MemoryPlan> take() && {
    std::ranges::stable_sort(plans_, {}, [](const MemoryPlan& plan) { return plan.views.front().tensor; });
    return std::move(plans_);
  }

 private:
  std::vector<MemoryPlan> plans_;
};

}  // namespace

std::vector<MemoryPlan> plan_memories(std::span<const ChosenTensor> tensors) {
  Planner planner;
  // torch gives a storage one dtype.
  std::map<std::pair<size_t, format::DType>, std::vector<Member>> memories;
  for (const ChosenTensor& tensor : tensors) {
    if (const auto member = member_of(tensor)) {
      memories[{tensor.shared->memory, tensor.content->dtype}].push_back(*member);
    } else {
      planner.add(alone(tensor));
    }
  }
  for (const auto& [memory, members] : memories) planner.add_memory(members);
  return std::move(planner).take();
}

}  // namespace sherd::stored
