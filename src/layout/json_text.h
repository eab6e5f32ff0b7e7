#pragma once
// For objects of a fixed form, which are written line by line.

#include <string>
#include <string_view>
#include <vector>

namespace sherd::detail {

/// A text as JSON has it, with its quotes. Bytes that are no UTF-8 become U+FFFD: JSON knows nothing else.
std::string json_text(std::string_view text);
std::string json_list(const std::vector<std::string>& texts);

}  // namespace sherd::detail
