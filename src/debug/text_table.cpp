#include "debug/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace sherd::detail {

std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& numbers) {
  std::vector<size_t> widths(numbers.size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += numbers[i] ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace sherd::detail
