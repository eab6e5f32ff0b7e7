#pragma once
// Steps of a save or a load that every rank takes or none does.

#include <functional>
#include <string>
#include <vector>

#include "sherd/group.h"

namespace sherd::detail {

/// What `say` gives on each rank. Where it throws on any, all throw: c10::ValueError for a fault of the arguments,
/// c10::Error for one of the files. A group of one rank throws what its rank said, without the frame around it.
std::vector<std::string> tell_all(const char* operation, const Group& group, const std::function<std::string()>& say);

/// The same for what a rank does by itself.
std::string alone(const std::function<std::string()>& say);

}  // namespace sherd::detail
