#include "comm/observer.h"

#include <utility>

#include "comm/group_state.h"

namespace sherd::detail {
namespace {

thread_local CommObserver* this_threads_observer = nullptr;

}  // namespace

CommObserver* comm_observer() { return this_threads_observer; }
CommObserver* set_comm_observer(CommObserver* observer) { return std::exchange(this_threads_observer, observer); }

void label_group(const Group& group, const std::string& axes) { group.state().set_axis_label(lasting_label(axes)); }

}  // namespace sherd::detail
