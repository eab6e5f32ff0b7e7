#pragma once
#include <optional>

#include "sherd/group.h"

namespace sherd::detail {

/// The group of the GroupScope that this thread is in.
const std::optional<Group>& group_of_scope();

}  // namespace sherd::detail
