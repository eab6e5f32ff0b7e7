#pragma once
// How the members of a group that is being made tell each other things: through its store.

#include <string>
#include <vector>

#include "comm/transports.h"

namespace sherd::detail {

/// What every member says under `topic`, in their order. All members call it; a topic is used once.
std::vector<std::string> exchange(const Meeting& meeting, const std::string& topic, const std::string& mine);

}  // namespace sherd::detail
