#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "picture/grid.h"
#include "picture/palette.h"
#include "sherd/picture.h"

namespace sherd {
namespace {

using detail::Band;
using detail::Cell;
using detail::Grid;
using detail::Sheet;

using Cells = std::vector<std::vector<Cell>>;  // of one slab

// By the arms that a crossing has: up 1, down 2, left 4, right 8.
constexpr std::array kCrossings = {" ", "│", "│", "│", "─", "┘", "┐", "┤", "─", "└", "┌", "├", "─", "┴", "┬", "┼"};

std::string repeated(std::string_view piece, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

// The narrowest column that takes every label and the offset above it.
size_t column_width(const Sheet& sheet, bool has_offsets) {
  size_t width = 3;
  for (const auto& slab : sheet.cells)
    for (const auto& row : slab)
      for (const Cell& cell : row) width = std::max(width, cell.label.size() + 2);
  if (has_offsets)
    for (const Band& column : sheet.columns) width = std::max(width, std::to_string(column.begin).size());
  return width;
}

// Cells between borders. Where two cells are one region there is no border between them, and one of them bears the
// label.
class TextGrid {
 public:
  TextGrid(const Grid& grid, const TextOptions& options)
      : options_(options),
        slab_dim_(grid.slabs().dim()),
        has_rows_(grid.rows().dim() >= 0),
        has_columns_(grid.columns().dim() >= 0) {
    // Fewer columns can need narrower ones, so the number that fits is found by trying.
    for (int64_t count = std::max<int64_t>(3, options.max_width / 4);; --count) {
      sheet_ = grid.sheet(options.max_slabs, options.max_rows, count);
      width_ = column_width(sheet_, has_columns_);
      if (has_rows_) gutter_ = std::to_string(sheet_.rows.back().end).size() + 1;
      const size_t last = has_columns_ ? std::to_string(sheet_.columns.back().end).size() : 1;
      const size_t whole = gutter_ + sheet_.columns.size() * (width_ + 1) + last;
      if (count <= 3 || whole <= static_cast<size_t>(std::max<int64_t>(0, options.max_width))) return;
      count = std::min(count, static_cast<int64_t>(sheet_.columns.size()));
    }
  }

  const Sheet& sheet() const { return sheet_; }

  std::string draw() const {
    std::string text;
    for (size_t s = 0; s < sheet_.slabs.size(); ++s) {
      const Band& slab = sheet_.slabs[s];
      if (slab.is_gap)
        text += "...\n";
      else
        text += draw_slab(slab, sheet_.cells[s]);
    }
    return text;
  }

  std::string painted(size_t color, std::string_view text) const {
    if (!options_.color) return std::string(text);
    return fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", detail::color_of(color).terminal, text);
  }

 private:
  std::string draw_slab(const Band& slab, const Cells& cells) const {
    std::string text;
    if (slab_dim_ >= 0) text += fmt::format("rows {}:{} of dim {}\n", slab.begin, slab.end, slab_dim_);
    if (has_columns_) text += offsets();
    const Labels labels = labelled(cells);
    for (size_t r = 0; r <= cells.size(); ++r) {
      text += border(cells, r);
      if (r < cells.size()) text += line(cells, labels, r);
    }
    return text;
  }

  std::string offsets() const {
    std::string line(gutter_, ' ');
    for (const Band& column : sheet_.columns) line += fmt::format("{:<{}}", column.begin, width_ + 1);
    return line + std::to_string(sheet_.columns.back().end) + "\n";
  }

  // Whether a border runs between row r - 1 and r below column c, and between columns c - 1 and c in row r.
  static bool has_line_above(const Cells& cells, size_t r, size_t c) {
    return r == 0 || r == cells.size() || !cells[r - 1][c].joins(cells[r][c]);
  }
  static bool has_line_before(const Cells& cells, size_t r, size_t c) {
    return c == 0 || c == cells[r].size() || !cells[r][c - 1].joins(cells[r][c]);
  }

  std::string border(const Cells& cells, size_t r) const {
    const size_t columns = cells.front().size();
    const int64_t offset = r < sheet_.rows.size() ? sheet_.rows[r].begin : sheet_.rows.back().end;
    std::string text = has_rows_ ? fmt::format("{:>{}} ", offset, gutter_ - 1) : "";
    for (size_t c = 0; c <= columns; ++c) {
      const bool up = r > 0 && has_line_before(cells, r - 1, c),
                 down = r < cells.size() && has_line_before(cells, r, c);
      const bool left = c > 0 && has_line_above(cells, r, c - 1), right = c < columns && has_line_above(cells, r, c);
      const size_t crossing = static_cast<size_t>(up) + 2 * static_cast<size_t>(down) + 4 * static_cast<size_t>(left) +
                              8 * static_cast<size_t>(right);
      text += crossing == 0 ? filled(cells[r][c], " ") : kCrossings[crossing];
      if (c < columns) text += right ? repeated("─", width_) : filled(cells[r][c], std::string(width_, ' '));
    }
    return text + "\n";
  }

  using Labels = std::map<std::pair<size_t, size_t>, std::string>;

  // Where labels stand: in the middle of their regions.
  static Labels labelled(const Cells& cells) {
    Labels labels;
    for (const detail::Region& region : detail::regions_of(cells))
      if (region.has_label)
        labels[{(region.top + region.bottom) / 2, (region.left + region.right) / 2}] = region.cell->label;
    return labels;
  }

  std::string line(const Cells& cells, const Labels& labels, size_t r) const {
    std::string text(gutter_, ' ');
    for (size_t c = 0; c < cells[r].size(); ++c) {
      text += has_line_before(cells, r, c) ? "│" : filled(cells[r][c], " ");
      const auto label = labels.find({r, c});
      text += filled(cells[r][c], fmt::format("{:^{}}", label == labels.end() ? "" : label->second, width_));
    }
    return text + "│\n";
  }

  std::string filled(const Cell& cell, const std::string& text) const {
    return cell.is_gap || cell.is_hole ? text : painted(cell.color, text);
  }

  const TextOptions& options_;
  int64_t slab_dim_;
  bool has_rows_, has_columns_;
  Sheet sheet_;
  size_t gutter_ = 0;
  size_t width_ = 0;
};

std::string draw(const Grid& grid, const TextOptions& options) {
  std::string text = grid.caption() + "\n";
  if (!grid.has_cells()) {
    for (const std::string& note : grid.notes({})) text += note + "\n";
    for (const std::string& note : options.notes) text += note + "\n";
    return text;
  }
  const TextGrid drawing(grid, options);
  text += drawing.draw();
  for (const std::string& note : grid.notes(drawing.sheet())) text += note + "\n";
  for (const std::string& note : options.notes) text += note + "\n";
  if (!options.legend) return text;
  for (const std::string& line : grid.axis_lines()) text += line + "\n";
  const Grid::Legend legend = grid.legend(drawing.sheet());
  for (const auto& line : legend.lines)
    text += options.color ? fmt::format("{} {}\n", drawing.painted(line.color, "  "), line.text) : line.text + "\n";
  if (legend.left_out > 0) text += fmt::format("and {} more\n", legend.left_out);
  return text;
}

int64_t kept(const TextOptions& options) {
  return std::max({options.max_rows, options.max_width / 4, options.max_slabs}) + 3;
}

}  // namespace

std::string draw_text(const Layout& layout, const TextOptions& options) {
  return draw(detail::LayoutGrid(layout, kept(options)), options);
}

std::string draw_text(const BoxPicture& picture, const TextOptions& options) {
  detail::check_inside("draw_text", picture);
  return draw(detail::BoxGrid(picture, kept(options)), options);
}

}  // namespace sherd
