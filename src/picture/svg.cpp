#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/escape.h"
#include "picture/grid.h"
#include "picture/palette.h"
#include "picture/svg_text.h"
#include "sherd/picture.h"

namespace sherd {
namespace {

using detail::Band;
using detail::Cell;
using detail::escaped;
using detail::Grid;
using detail::Region;
using detail::Sheet;
using detail::text_width;

constexpr int64_t kMargin = 12;
constexpr int64_t kLine = 18;            // height of a line of text
constexpr int64_t kThinnest = 16;        // cells thinner than this are drawn so thick
constexpr int64_t kOneRow = 48;          // height of the picture of a 1-D tensor
constexpr int64_t kDeepest = 26;         // how far a slab stands out
constexpr int64_t kSlabWidth = 200;      // slabs narrower than this go into the next line
constexpr int64_t kHatch = 9;            // between the lines of a hatch
constexpr int64_t kMaxSlabs = 12;        // of one picture
constexpr double kTallest = 0.45;        // of the width
constexpr const char* kInk = "#1b1d20";  // on every colour of the palette

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

// Lines from lower left to upper right inside a rectangle: its ranks hold terms of the value.
std::string hatch(int64_t x, int64_t y, int64_t width, int64_t height) {
  std::string path;
  for (int64_t d = kHatch; d < width + height; d += kHatch) {
    const int64_t x1 = std::max<int64_t>(0, d - height), x2 = std::min(d, width);
    path += fmt::format("M{} {}L{} {}", x + x1, y + d - x1, x + x2, y + d - x2);
  }
  return fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-opacity=\"0.4\" fill=\"none\"/>", path, kInk);
}

std::string fill_of(const Cell& cell) {
  return cell.is_gap || cell.is_hole ? "none" : detail::color_of(cell.color).hex;
}

const char* dash_of(const Cell& cell) { return cell.is_gap || cell.is_hole ? " stroke-dasharray=\"3\"" : ""; }

// One slab: its face, and the two sides that are seen of it where the tensor has a third dim.
class SvgSlab {
 public:
  SvgSlab(const Grid& grid, const Sheet& sheet, size_t slab)
      : sheet_(sheet),
        slab_(slab),
        slab_dim_(grid.slabs().dim()),
        has_rows_(grid.rows().dim() >= 0),
        has_columns_(grid.columns().dim() >= 0) {
    if (grid.shape().size() < 3) return;
    const double share = slab_dim_ < 0 || sheet.slabs[slab].is_gap
                             ? 1.0
                             : static_cast<double>(sheet.slabs[slab].end - sheet.slabs[slab].begin) /
                                   static_cast<double>(grid.shape()[static_cast<size_t>(slab_dim_)]);
    depth_ = std::clamp<int64_t>(std::lround(kDeepest * share), 6, kDeepest);
  }

  /// Takes a place of at most `width` pixels, unless cells would be too thin; `tallest` bounds the face.
  void place(int64_t left, int64_t top, int64_t width, double tallest) {
    const int64_t digits = has_rows_ ? text_width(sheet_.rows.back().end) + 6 : 0;
    title_ = top;
    const int64_t x = left + digits, y = top + (slab_dim_ >= 0 ? kLine : 0) + (has_columns_ ? kLine : 0) + depth_;
    // The last offset is centred on the right edge.
    right_margin_ = std::max(depth_, has_columns_ ? text_width(sheet_.columns.back().end) / 2 : 0) + 4;
    const int64_t length = std::max<int64_t>(width - digits - right_margin_, kThinnest);
    x_ = edges(sheet_.columns, x, length);
    y_ = edges(sheet_.rows, y, has_rows_ ? height(length, tallest) : kOneRow);
  }

  int64_t right() const { return x_.back() + right_margin_; }
  int64_t bottom() const { return y_.back(); }

  std::string draw() const {
    std::string svg;
    if (slab_dim_ >= 0)
      svg += detail::svg_text(
          x_.front(), title_ + 12,
          fmt::format("{}:{} of dim {}", sheet_.slabs[slab_].begin, sheet_.slabs[slab_].end, slab_dim_));
    if (has_columns_) svg += column_offsets();
    if (has_rows_)
      for (size_t r = 0; r < y_.size(); ++r)
        svg += detail::svg_text(x_.front() - 5, y_[r] + 4,
                                std::to_string(r < sheet_.rows.size() ? sheet_.rows[r].begin : sheet_.rows.back().end),
                                "end");
    for (const Region& region : detail::regions_of(sheet_.cells[slab_])) svg += draw_region(region);
    return svg;
  }

 private:
  // The offsets above the columns; those that would run into each other are left out, but not the last.
  std::string column_offsets() const {
    std::string svg;
    const int64_t last_begin = x_.back() - text_width(sheet_.columns.back().end) / 2;
    int64_t free_from = 0;
    for (size_t c = 0; c < x_.size(); ++c) {
      const bool is_last = c == sheet_.columns.size();
      const int64_t offset = is_last ? sheet_.columns.back().end : sheet_.columns[c].begin;
      const int64_t half = text_width(offset) / 2;
      if (!is_last && (x_[c] - half < free_from || x_[c] + half + text_width(0) > last_begin)) continue;
      svg += detail::svg_text(x_[c] + depth_, y_.front() - depth_ - 5, std::to_string(offset), "middle");
      free_from = x_[c] + half + text_width(0);
    }
    return svg;
  }

  // In proportion to the columns, within reason.
  int64_t height(int64_t length, double tallest) const {
    const double ratio = static_cast<double>(sheet_.rows.back().end) / static_cast<double>(sheet_.columns.back().end);
    return std::lround(static_cast<double>(length) * std::clamp(ratio, 0.2, tallest));
  }

  std::string draw_region(const Region& region) const {
    const Cell& cell = *region.cell;
    const int64_t x = x_[region.left], y = y_[region.top];
    const int64_t width = x_[region.right + 1] - x, height = y_[region.bottom + 1] - y;
    std::string svg = fmt::format("<g><title>{}</title>", escaped(tooltip(region)));
    svg += sides(region);
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#666\"{}/>", x, y,
                       width, height, fill_of(cell), dash_of(cell));
    if (cell.is_partial) svg += hatch(x, y, width, height);
    if (region.has_label && !cell.label.empty() && text_width(cell.label) + 4 <= width) {
      const int64_t middle = x + width / 2, line = y + height / 2 + 4;
      if (cell.is_partial)  // a quiet place for the label
        svg +=
            fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"15\" fill=\"{}\"/>",
                        middle - text_width(cell.label) / 2 - 2, line - 11, text_width(cell.label) + 4, fill_of(cell));
      svg += detail::svg_text(middle, line, cell.label, "middle", cell.is_gap ? "currentColor" : kInk);
    }
    return svg + "</g>\n";
  }

  // The upper and the right side.
  std::string sides(const Region& region) const {
    if (depth_ == 0) return "";
    const Cell& cell = *region.cell;
    const std::string fill = cell.is_gap || cell.is_hole ? "none" : detail::color_of(cell.color).shade;
    const int64_t left = x_[region.left], right = x_[region.right + 1];
    const int64_t top = y_[region.top], bottom = y_[region.bottom + 1];
    std::string path;
    if (region.top == 0) path += fmt::format("M{0} {1}H{2}l{3} -{3}H{4}Z", left, top, right, depth_, left + depth_);
    if (region.right + 1 == sheet_.columns.size())
      path += fmt::format("M{0} {1}V{2}l{3} -{3}V{4}Z", right, top, bottom, depth_, top - depth_);
    if (path.empty()) return "";
    return fmt::format("<path d=\"{}\" fill=\"{}\" stroke=\"#666\"{}/>", path, fill, dash_of(cell));
  }

  std::string tooltip(const Region& region) const {
    const Cell& cell = *region.cell;
    const bool one_rank = cell.label.find_first_of(",-+") == std::string::npos;
    std::string text = cell.is_gap    ? "left out"
                       : cell.is_hole ? "held by nobody here"
                                      : (one_rank ? "rank " : "ranks ") + cell.label;
    if (slab_dim_ >= 0) text += fmt::format("; slab {}:{}", sheet_.slabs[slab_].begin, sheet_.slabs[slab_].end);
    if (has_rows_) text += fmt::format("; rows {}:{}", sheet_.rows[region.top].begin, sheet_.rows[region.bottom].end);
    if (has_columns_)
      text += fmt::format("; {} {}:{}", has_rows_ ? "columns" : "rows", sheet_.columns[region.left].begin,
                          sheet_.columns[region.right].end);
    return text;
  }

  const Sheet& sheet_;
  size_t slab_;
  int64_t slab_dim_;
  bool has_rows_, has_columns_;
  int64_t depth_ = 0, title_ = 0, right_margin_ = 0;
  std::vector<int64_t> x_, y_;
};

// Lines of text and colours from the top of the picture to its bottom.
class SvgPage {
 public:
  explicit SvgPage(const SvgOptions& options) : width_(std::max<int64_t>(options.width, 80)) {}

  void line(const std::string& text) {
    for (const std::string& part : detail::wrapped(text, width_ - 2 * kMargin)) {
      body_ += detail::svg_text(kMargin, y_ + 12, part);
      y_ += kLine;
    }
  }

  void slabs(const Grid& grid, const Sheet& sheet) {
    const int64_t count = static_cast<int64_t>(sheet.slabs.size());
    const int64_t room = width_ - 2 * kMargin;
    const int64_t in_line = std::clamp<int64_t>(room / kSlabWidth, 1, count);
    int64_t x = kMargin, bottom = y_;
    for (int64_t s = 0; s < count; ++s) {
      SvgSlab slab(grid, sheet, static_cast<size_t>(s));
      if (s > 0 && s % in_line == 0) {
        x = kMargin;
        y_ = bottom + kLine / 2;
      }
      slab.place(x, y_, room / in_line - (in_line > 1 ? 8 : 0), in_line > 1 ? 1.0 : kTallest);
      body_ += slab.draw();
      x = slab.right() + 12;
      right_ = std::max(right_, slab.right());
      bottom = std::max(bottom, slab.bottom());
    }
    y_ = bottom + 8;
  }

  void legend(const Grid& grid, const Sheet& sheet) {
    for (const std::string& text : grid.axis_lines()) line(text);
    const Grid::Legend legend = grid.legend(sheet);
    // Two columns of short lines, or one.
    const int64_t half = (width_ - 2 * kMargin) / 2;
    const bool in_two =
        legend.lines.size() > 2 && std::all_of(legend.lines.begin(), legend.lines.end(),
                                               [&](const auto& entry) { return text_width(entry.text) + 24 <= half; });
    const int64_t top = y_;
    for (size_t i = 0; i < legend.lines.size(); ++i) {
      const bool is_right = in_two && i % 2 == 1;
      if (is_right) y_ -= kLine;
      swatch(kMargin + (is_right ? half : 0), legend.lines[i]);
      y_ += kLine;
    }
    if (legend.left_out > 0) line(fmt::format("and {} more", legend.left_out));
    if (y_ > top) y_ += 2;
  }

  std::string finish(const std::string& caption) const {
    const int64_t width = std::max(width_, right_ + kMargin);
    // Inside a page the picture takes the page's colour; where it is the document, the reader's.
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{3}\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"12\" "
        "style=\"max-width: 100%; height: auto\">\n"
        "<style>svg:root {{ color: #1b1d20; }} @media (prefers-color-scheme: dark) {{ svg:root {{ color: #e6e8eb; "
        "}} }}</style>\n{2}</svg>\n",
        width, y_ + kMargin - 4, body_, escaped(caption));
  }

 private:
  void swatch(int64_t x, const detail::LegendLine& entry) {
    const char* color = detail::color_of(entry.color).hex;
    body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"12\" fill=\"{}\" stroke=\"#666\"/>", x, y_ + 2,
                         color);
    if (entry.is_partial) body_ += hatch(x, y_ + 2, 14, 12);
    body_ += detail::svg_text(x + 21, y_ + 12, entry.text);
  }

  int64_t width_;
  int64_t y_ = kMargin - 4;
  int64_t right_ = 0;
  std::string body_;
};

std::string draw(const Grid& grid, const SvgOptions& options) {
  SvgPage page(options);
  page.line(grid.caption());
  Sheet sheet;
  if (grid.has_cells()) {
    sheet = grid.sheet(std::min(options.max_cells, kMaxSlabs), options.max_cells, options.max_cells);
    page.slabs(grid, sheet);
  }
  for (const std::string& note : grid.notes(sheet)) page.line(note);
  for (const std::string& note : options.notes) page.line(note);
  if (options.legend && grid.has_cells()) page.legend(grid, sheet);
  return page.finish(grid.caption());
}

}  // namespace

std::string draw_svg(const Layout& layout, const SvgOptions& options) {
  return draw(detail::LayoutGrid(layout, options.max_cells + 3), options);
}

std::string draw_svg(const BoxPicture& picture, const SvgOptions& options) {
  detail::check_inside("draw_svg", picture);
  return draw(detail::BoxGrid(picture, options.max_cells + 3), options);
}

}  // namespace sherd
