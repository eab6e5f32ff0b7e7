#include "comm/profiler_range.h"

#include <ATen/core/ivalue.h>

#include <string>

#include "comm/group_state.h"

namespace sherd::detail {

CommRange::CommRange(const Group& group, Collective kind, int64_t bytes, bool waits)
    : range_(at::RecordScope::USER_SCOPE) {
  if (!range_.isActive()) return;
  const std::string& axis = group.state().axis_label();
  const std::string name =
      std::string("sherd::") + name_of(kind) + "@" + (axis.empty() ? group.name() : axis) + (waits ? " wait" : "");
  if (range_.needsInputs()) inputs_ = {c10::IValue(bytes)};
  // Profilers keep the pointer.
  range_.before(lasting_label(name)->c_str(), c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()));
}

}  // namespace sherd::detail
