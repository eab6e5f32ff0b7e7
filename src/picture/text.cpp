#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "picture/grid.h"
#include "sherd/picture.h"

namespace sherd {
namespace {

using detail::Band;
using detail::Cell;
using detail::Grid;

// Light backgrounds of the 256-colour palette, under black text.
constexpr std::array kColors = {153, 223, 151, 225, 229, 189, 195};

std::string repeated(std::string_view piece, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

// The narrowest column that takes every label and the offset above it.
size_t column_width(const std::vector<std::vector<Cell>>& cells, const std::vector<Band>& columns, bool has_offsets) {
  size_t width = 3;
  for (const auto& row : cells)
    for (const Cell& cell : row) width = std::max(width, cell.label.size() + 2);
  if (has_offsets)
    for (const Band& column : columns) width = std::max(width, std::to_string(column.begin).size());
  return width;
}

class TextGrid {
 public:
  TextGrid(const Grid& grid, const TextOptions& options)
      : options_(options), rows_(grid.rows().fit(options.max_rows)), has_columns_(grid.columns().dim() >= 0) {
    if (grid.rows().dim() >= 0) gutter_ = std::to_string(rows_.back().end).size() + 1;
    // Fewer columns can need narrower ones, so the number that fits is found by trying.
    for (int64_t count = std::max<int64_t>(3, options.max_width / 4);; --count) {
      columns_ = grid.columns().fit(count);
      cells_ = grid.cells(rows_, columns_);
      width_ = column_width(cells_, columns_, has_columns_);
      const size_t last = has_columns_ ? std::to_string(columns_.back().end).size() : 1;
      const size_t whole = gutter_ + columns_.size() * (width_ + 1) + last;
      if (count <= 3 || whole <= static_cast<size_t>(std::max<int64_t>(0, options.max_width))) return;
      count = std::min(count, static_cast<int64_t>(columns_.size()));
    }
  }

  const std::vector<Band>& rows() const { return rows_; }
  const std::vector<Band>& columns() const { return columns_; }

  std::string draw() const {
    std::string text;
    if (has_columns_) text += offsets();
    for (size_t r = 0; r < rows_.size(); ++r) {
      text += r == 0 ? border(rows_[r].begin, "┌", "┬", "┐") : border(rows_[r].begin, "├", "┼", "┤");
      text += std::string(gutter_, ' ') + "│";
      for (const Cell& cell : cells_[r]) text += painted(cell) + "│";
      text += "\n";
    }
    return text + border(rows_.back().end, "└", "┴", "┘");
  }

 private:
  std::string offsets() const {
    std::string line(gutter_, ' ');
    for (const Band& column : columns_) line += fmt::format("{:<{}}", column.begin, width_ + 1);
    return line + std::to_string(columns_.back().end) + "\n";
  }

  std::string border(int64_t offset, std::string_view left, std::string_view middle, std::string_view right) const {
    std::string line = gutter_ ? fmt::format("{:>{}} ", offset, gutter_ - 1) : "";
    for (size_t c = 0; c < columns_.size(); ++c) line.append(c ? middle : left).append(repeated("─", width_));
    return line.append(right) + "\n";
  }

  std::string painted(const Cell& cell) const {
    std::string text = fmt::format("{:^{}}", cell.label, width_);
    if (!options_.color || cell.is_gap) return text;
    return fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", kColors[cell.color % kColors.size()], text);
  }

  const TextOptions& options_;
  std::vector<Band> rows_, columns_;
  std::vector<std::vector<Cell>> cells_;
  bool has_columns_;
  size_t gutter_ = 0;
  size_t width_ = 0;
};

}  // namespace

std::string draw_text(const Layout& layout, const TextOptions& options) {
  const Grid grid(layout, std::max(options.max_rows, options.max_width / 4) + 3);
  std::string text = grid.caption() + "\n";
  std::vector<std::string> notes;
  if (grid.has_cells()) {
    const TextGrid drawing(grid, options);
    text += drawing.draw();
    notes = grid.notes(drawing.rows(), drawing.columns());
  } else {
    notes = grid.notes({}, {});
  }
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

}  // namespace sherd
