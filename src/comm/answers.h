#pragma once
// Ranks that check their arguments before they go on together.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/group.h"

namespace sherd::detail {

/// What `say` gives on each rank, in the order of the group: one small exchange. Throws the same c10::ValueError on
/// every rank, naming the ranks that failed and their messages, where it threw on any.
std::vector<std::string> answers_of_all(const Group& group, std::string_view operation,
                                        const std::function<std::string()>& say);

}  // namespace sherd::detail
