#pragma once
#include <string>
#include <vector>

namespace sherd::detail {

/// "a, b, c, and 4 more" for people; "none" where there are none.
std::string listed(const std::vector<std::string>& names, size_t most);

}  // namespace sherd::detail
