#include "comm/rank_list.h"

namespace sherd::detail {

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += (end - i == 2 ? ", " : "-") + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string rank_count(int64_t ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

}  // namespace sherd::detail
