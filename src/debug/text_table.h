#pragma once

#include <string>
#include <vector>

namespace sherd::detail {

/// Columns aligned by spaces, the first row as a heading; a column of numbers is aligned to the right.
std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& numbers);

}  // namespace sherd::detail
