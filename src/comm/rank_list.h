#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sherd::detail {

/// "0-3, 6": ranks as people read them.
std::string rank_list(const std::vector<int64_t>& ranks);

/// "1 rank", "4 ranks".
std::string rank_count(int64_t ranks);

}  // namespace sherd::detail
