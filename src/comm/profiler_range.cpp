#include "comm/profiler_range.h"

#include <ATen/core/ivalue.h>

#include <map>
#include <string>
#include <utility>

#include "comm/group_state.h"

namespace sherd::detail {
namespace {

// Profilers keep the pointer.
const char* range_name(Collective kind, bool waits) {
  static const auto* names = [] {
    auto* all = new std::map<std::pair<Collective, bool>, std::string>;
    for (int k = 0; k <= static_cast<int>(Collective::receive); ++k) {
      const auto each = static_cast<Collective>(k);
      (*all)[{each, false}] = std::string("sherd::") + name_of(each);
      (*all)[{each, true}] = std::string("sherd::") + name_of(each) + " wait";
    }
    return all;
  }();
  return names->at({kind, waits}).c_str();
}

}  // namespace

CommRange::CommRange(const Group& group, Collective kind, int64_t bytes, bool waits)
    : range_(at::RecordScope::USER_SCOPE) {
  if (!range_.isActive()) return;
  if (range_.needsInputs()) {
    const std::string& axis = group.state().axis_label();
    inputs_ = {c10::IValue(axis.empty() ? group.name() : axis), c10::IValue(bytes)};
  }
  range_.before(range_name(kind, waits), c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()));
}

}  // namespace sherd::detail
