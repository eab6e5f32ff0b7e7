#include "table.h"

#include <fmt/format.h>

#include <algorithm>

namespace sherd::tools {
namespace {

constexpr size_t kNarrowestColumn = 8;

std::string padded(const std::string& text, size_t width, bool right) {
  const size_t columns = columns_of(text);
  const std::string space(width > columns ? width - columns : 0, ' ');
  return right ? space + text : text + space;
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  row.resize(columns_.size());
  for (std::string& word : row) std::replace(word.begin(), word.end(), '\n', ' ');
  rows_.push_back(std::move(row));
}

std::string Table::text(std::optional<int> width, bool color) const {
  std::vector<size_t> widths;
  size_t total = 2 * (columns_.size() - 1);
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t widest = columns_of(columns_[c].title);
    for (const auto& row : rows_) widest = std::max(widest, columns_of(row[c]));
    widths.push_back(widest);
    total += widest;
  }
  while (width && total > static_cast<size_t>(*width)) {
    size_t widest = columns_.size();
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!columns_[c].shrinks || widths[c] <= kNarrowestColumn) continue;
      if (widest == columns_.size() || widths[c] > widths[widest]) widest = c;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
    --total;
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& words, bool title) {
    std::string text;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const Style style = title ? Style::dim : columns_[c].style;
      const bool last = c + 1 == columns_.size() && !columns_[c].right;
      const std::string word = columns_[c].shrinks ? shortened(words[c], widths[c]) : words[c];
      const std::string cell = last ? word : padded(word, widths[c], columns_[c].right);
      text += (c == 0 ? "" : "  ") + styled(cell, style, color);
    }
    while (text.ends_with(' ')) text.pop_back();
    out += text + "\n";
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const bool titled =
      std::any_of(titles.begin(), titles.end(), [](const std::string& title) { return !title.empty(); });
  if (titled) line(titles, true);
  for (const auto& row : rows_) line(row, false);
  return out;
}

void Table::print() const { fmt::print("{}", text(width_of(stdout), has_color(stdout))); }

}  // namespace sherd::tools
