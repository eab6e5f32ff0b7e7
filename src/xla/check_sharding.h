#pragma once

#include <string>
#include <string_view>

#include "sherd/xla_sharding.h"

namespace sherd::detail {

/// What is wrong with the fields of a sharding, "" where nothing is: tiles below 1, another number of devices than
/// tiles, a device twice or negative, more subgroups than dims.
std::string sharding_problem(const XlaSharding& sharding);

/// Throws std::invalid_argument with sharding_problem, for a sharding that a program has put together.
void check_sharding(std::string_view operation, const XlaSharding& sharding);

}  // namespace sherd::detail
