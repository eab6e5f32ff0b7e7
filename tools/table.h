#pragma once
// Rows of words in columns that fit the screen.

#include <optional>
#include <string>
#include <vector>

#include "terminal.h"

namespace sherd::tools {

struct Column {
  std::string title;
  bool right = false;    // numbers
  bool shrinks = false;  // texts that are cut where a row does not fit
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many words as there are columns. Line breaks in them become spaces.
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }

  /// A line of titles, where there are any, and one per row, two spaces between columns. With a width, columns that may
  /// shrink give way, the widest first, down to eight characters.
  std::string text(std::optional<int> width, bool color) const;
  /// On standard output, for what that is.
  void print() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sherd::tools
