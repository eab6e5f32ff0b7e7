#include "debug/debug_log.h"

#include <algorithm>

#include "sherd/world.h"

namespace sherd::detail {
namespace {

int this_rank() {
  const auto world = find_world();
  return world ? world->rank() : 0;
}

}  // namespace

DebugLog::DebugLog(const CommDebugOptions& o)
    : options(o),
      rank(this_rank()),
      epoch_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

std::optional<size_t> DebugLog::add(CommRecord record, MovingCallPtr call) {
  const std::lock_guard lock(mutex_);
  if (ended_) return std::nullopt;
  entries_.push_back({std::move(record), std::move(call)});
  return entries_.size() - 1;
}

void DebugLog::finish(size_t record, int64_t now) {
  const std::lock_guard lock(mutex_);
  CommRecord& which = entries_[record].record;
  which.duration_ns = now - start_ns - which.start_ns;
}

void DebugLog::add(OperatorRecord record) {
  const std::lock_guard lock(mutex_);
  if (!ended_) operators_.push_back(std::move(record));
}

std::vector<DebugLog::Entry> DebugLog::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> result = entries_;
  std::stable_sort(result.begin(), result.end(),
                   [](const Entry& a, const Entry& b) { return a.record.start_ns < b.record.start_ns; });
  return result;
}

std::vector<OperatorRecord> DebugLog::all_operators() const {
  const std::lock_guard lock(mutex_);
  std::vector<OperatorRecord> result = operators_;
  // Those that begin together: the outer one, which lasts longer, first.
  std::stable_sort(result.begin(), result.end(), [](const OperatorRecord& a, const OperatorRecord& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  return result;
}

void DebugLog::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

}  // namespace sherd::detail
