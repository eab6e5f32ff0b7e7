#include "sharded/group_scope.h"

#include "comm/errors.h"
#include "sherd/sharded_tensor.h"

namespace sherd {
namespace {

thread_local std::optional<Group> current;

}  // namespace

const std::optional<Group>& detail::group_of_scope() { return current; }

namespace sharded {

GroupScope::GroupScope(const Group& group) {
  if (current) {
    detail::throw_error(ErrorText("GroupScope", "this thread is in one already")
                            .fact("its group", current->name())
                            .fact("new group", group.name())
                            .help("end the first scope before the second begins"));
  }
  current = group;
}

GroupScope::~GroupScope() { current.reset(); }

}  // namespace sharded
}  // namespace sherd
