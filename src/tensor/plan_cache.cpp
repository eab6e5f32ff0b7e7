#include "tensor/plan_cache.h"

#include <utility>

namespace sherd::detail {

OpPlan* PlanCache::insert(const PlanKey& key, std::unique_ptr<OpPlan> plan) {
  if (2 * (count_ + 1) > entries_.size()) grow();
  size_t i = key.hash() & mask_;
  while (entries_[i].plan) i = (i + 1) & mask_;
  entries_[i] = {key.hash(), key.words(), std::move(plan)};
  ++count_;
  return entries_[i].plan.get();
}

void PlanCache::clear() {
  entries_ = std::vector<Entry>(256);
  mask_ = 255;
  count_ = 0;
}

void PlanCache::grow() {
  std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
  mask_ = entries_.size() - 1;
  for (Entry& entry : old) {
    if (!entry.plan) continue;
    size_t i = entry.hash & mask_;
    while (entries_[i].plan) i = (i + 1) & mask_;
    entries_[i] = std::move(entry);
  }
}

}  // namespace sherd::detail
