#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/grid.h"
#include "sherd/picture.h"

namespace sherd {
namespace {

using detail::Band;
using detail::Cell;
using detail::Grid;

constexpr int64_t kMargin = 12;
constexpr int64_t kLine = 18;      // height of a line of text
constexpr int64_t kCharacter = 7;  // width of one, about
constexpr int64_t kThinnest = 16;  // cells thinner than this are drawn so thick
constexpr int64_t kOneRow = 48;    // height of the picture of a 1-D tensor

std::string escaped(std::string_view text) {
  std::string safe;
  for (char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Where the bands begin, in pixels, and where the last one ends: to scale, unless some are left out.
std::vector<int64_t> edges(const std::vector<Band>& bands, int64_t from, int64_t length) {
  const bool has_gap = std::any_of(bands.begin(), bands.end(), [](const Band& band) { return band.is_gap; });
  const double size = static_cast<double>(bands.back().end);
  std::vector<int64_t> edges = {from};
  for (const Band& band : bands) {
    const double share =
        has_gap ? 1.0 / static_cast<double>(bands.size()) : static_cast<double>(band.end - band.begin) / size;
    edges.push_back(edges.back() + std::max<int64_t>(kThinnest, std::lround(share * static_cast<double>(length))));
  }
  return edges;
}

class SvgGrid {
 public:
  SvgGrid(const Grid& grid, const SvgOptions& options)
      : rows_(grid.rows().fit(options.max_cells)),
        columns_(grid.columns().fit(options.max_cells)),
        cells_(grid.cells(rows_, columns_)),
        has_rows_(grid.rows().dim() >= 0),
        has_columns_(grid.columns().dim() >= 0) {
    const int64_t digits = has_rows_ ? static_cast<int64_t>(std::to_string(rows_.back().end).size()) : 0;
    const int64_t left = kMargin + digits * kCharacter + (digits ? 6 : 0);
    const int64_t top = kMargin + 2 * kLine;
    // The last offset is centred on the right edge.
    right_margin_ = kMargin + (has_columns_ ? text_width(columns_.back().end) / 2 : 0);
    const int64_t length = std::max<int64_t>(options.width - left - right_margin_, kThinnest);
    x_ = edges(columns_, left, length);
    y_ = edges(rows_, top, has_rows_ ? height(length) : kOneRow);
  }

  const std::vector<Band>& rows() const { return rows_; }
  const std::vector<Band>& columns() const { return columns_; }
  int64_t right() const { return x_.back() + right_margin_; }
  int64_t bottom() const { return y_.back(); }

  std::string draw() const {
    std::string svg = has_columns_ ? draw_column_offsets() : "";
    if (has_rows_)
      for (size_t r = 0; r < y_.size(); ++r)
        svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"currentColor\">{}</text>\n",
                           x_.front() - 5, y_[r] + 4, r < rows_.size() ? rows_[r].begin : rows_.back().end);
    for (size_t r = 0; r < rows_.size(); ++r)
      for (size_t c = 0; c < columns_.size(); ++c) svg += draw_cell(r, c);
    return svg;
  }

 private:
  static int64_t text_width(int64_t number) { return static_cast<int64_t>(std::to_string(number).size()) * kCharacter; }

  // The offsets above the columns; those that would run into each other are left out, but not the last.
  std::string draw_column_offsets() const {
    std::string svg;
    const int64_t last_begin = x_.back() - text_width(columns_.back().end) / 2;
    int64_t free_from = 0;
    for (size_t c = 0; c < x_.size(); ++c) {
      const bool is_last = c == columns_.size();
      const int64_t offset = is_last ? columns_.back().end : columns_[c].begin;
      const int64_t half = text_width(offset) / 2;
      if (!is_last && (x_[c] - half < free_from || x_[c] + half + kCharacter > last_begin)) continue;
      svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n", x_[c],
                         y_.front() - 5, offset);
      free_from = x_[c] + half + kCharacter;
    }
    return svg;
  }

  // In proportion to the columns, within reason.
  int64_t height(int64_t length) const {
    const double ratio = static_cast<double>(rows_.back().end) / static_cast<double>(columns_.back().end);
    return std::lround(static_cast<double>(length) * std::clamp(ratio, 0.2, 1.0));
  }

  std::string draw_cell(size_t r, size_t c) const {
    const Cell& cell = cells_[r][c];
    const int64_t x = x_[c], y = y_[r], width = x_[c + 1] - x, height = y_[r + 1] - y;
    const std::string fill =
        cell.is_gap ? "none"
                    : fmt::format("hsl({}, 70%, 80%)", std::lround(static_cast<double>(cell.color) * 137.508) % 360);
    std::string svg = fmt::format(
        "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#666\"{}/>",
        tooltip(r, c), x, y, width, height, fill, cell.is_gap ? " stroke-dasharray=\"3\"" : "");
    if (static_cast<int64_t>(cell.label.size()) * kCharacter + 4 <= width)
      svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>", x + width / 2,
                         y + height / 2 + 4, cell.is_gap ? "currentColor" : "#222", cell.label);
    return svg + "</g>\n";
  }

  std::string tooltip(size_t r, size_t c) const {
    const Cell& cell = cells_[r][c];
    const bool one_rank = cell.label.find_first_of(",-") == std::string::npos;
    std::string text = cell.is_gap ? "left out" : (one_rank ? "rank " : "ranks ") + cell.label;
    if (has_rows_) text += fmt::format("; rows {}:{}", rows_[r].begin, rows_[r].end);
    if (has_columns_)
      text += fmt::format("; {} {}:{}", has_rows_ ? "columns" : "rows", columns_[c].begin, columns_[c].end);
    return text;
  }

  std::vector<Band> rows_, columns_;
  std::vector<std::vector<Cell>> cells_;
  bool has_rows_, has_columns_;
  int64_t right_margin_ = 0;
  std::vector<int64_t> x_, y_;
};

}  // namespace

std::string draw_svg(const Layout& layout, const SvgOptions& options) {
  const Grid grid(layout, options.max_cells + 3);
  std::string body = fmt::format("<text x=\"{}\" y=\"{}\" fill=\"currentColor\">{}</text>\n", kMargin, kMargin + 8,
                                 escaped(grid.caption()));
  std::vector<std::string> notes;
  int64_t width = options.width, y = kMargin + 8;
  if (grid.has_cells()) {
    const SvgGrid drawing(grid, options);
    body += drawing.draw();
    notes = grid.notes(drawing.rows(), drawing.columns());
    width = std::max(width, drawing.right());
    y = drawing.bottom() + 6;
  } else {
    notes = grid.notes({}, {});
  }
  for (const std::string& note : notes) {
    y += kLine;
    body += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"currentColor\">{}</text>\n", kMargin, y, escaped(note));
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"monospace\" font-size=\"12\">\n{2}</svg>\n",
      width, y + kMargin, body);
}

std::string draw_html(std::span<const TitledLayout> pictures, const SvgOptions& options) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>layouts</title>\n<style>\n"
      ":root { color-scheme: light dark; font-family: sans-serif; }\nbody { margin: 2em; }\n"
      "section { margin-bottom: 2em; overflow-x: auto; }\nh2 { font-size: 1em; }\n</style>\n</head>\n<body>\n";
  for (const TitledLayout& picture : pictures)
    page += fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escaped(picture.title),
                        draw_svg(picture.layout, options));
  return page + "</body>\n</html>\n";
}

}  // namespace sherd
