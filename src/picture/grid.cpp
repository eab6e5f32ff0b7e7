#include "picture/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sherd::detail {
namespace {

constexpr size_t kLegendLines = 8;
constexpr size_t kLabelGroups = 3;

void note_left_out(const Bands& bands, const std::vector<Band>& drawn, std::string_view what,
                   std::vector<std::string>& notes) {
  const auto gap = std::find_if(drawn.begin(), drawn.end(), [](const Band& band) { return band.is_gap; });
  if (gap == drawn.end()) return;
  const int64_t left_out = bands.total() - static_cast<int64_t>(drawn.size()) + 1;
  const bool counted = bands.total() < Bands::kMaxCounted;
  notes.push_back(fmt::format("{}{} of {} {} left out: {}:{} of dim {}", counted ? "" : "more than ", left_out,
                              bands.total(), what, gap->begin, gap->end, bands.dim()));
}

}  // namespace

DrawnDims drawn_dims(const Dims& shape, const std::vector<bool>& is_cut) {
  const int64_t ndim = static_cast<int64_t>(shape.size());
  if (ndim <= 2) return {-1, ndim - 2 < 0 ? -1 : 0, ndim - 1};
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < ndim; ++d) dims.push_back(d);
  const auto cut = [&](int64_t d) { return is_cut[static_cast<size_t>(d)]; };
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
    if (cut(a) != cut(b)) return cut(a);
    if (!cut(a)) return a > b;
    return shape[static_cast<size_t>(a)] > shape[static_cast<size_t>(b)];
  });
  if (!cut(dims[2])) return {-1, std::min(dims[0], dims[1]), std::max(dims[0], dims[1])};
  std::sort(dims.begin(), dims.begin() + 3);
  return {dims[0], dims[1], dims[2]};
}

std::vector<Region> regions_of(const std::vector<std::vector<Cell>>& cells) {
  struct Extent {
    Region region;
    size_t cells = 0;
  };
  std::map<int64_t, Extent> extents;
  std::vector<Region> regions;
  for (size_t r = 0; r < cells.size(); ++r)
    for (size_t c = 0; c < cells[r].size(); ++c) {
      const Cell& cell = cells[r][c];
      if (cell.region < 0) {
        regions.push_back({r, c, r, c, &cell});
        continue;
      }
      Extent& extent = extents.emplace(cell.region, Extent{{r, c, r, c, &cell}}).first->second;
      extent.region.left = std::min(extent.region.left, c);
      extent.region.right = std::max(extent.region.right, c);
      extent.region.bottom = r;
      extent.cells += 1;
    }
  for (const auto& [number, extent] : extents) {
    const Region& whole = extent.region;
    if (extent.cells == (whole.bottom - whole.top + 1) * (whole.right - whole.left + 1)) {
      regions.push_back(whole);
      continue;
    }
    bool has_label = true;
    for (size_t r = whole.top; r <= whole.bottom; ++r)
      for (size_t c = whole.left; c <= whole.right; ++c)
        if (cells[r][c].region == number) {
          regions.push_back({r, c, r, c, &cells[r][c], has_label});
          has_label = false;
        }
  }
  return regions;
}

Sheet Grid::sheet(int64_t max_slabs, int64_t max_rows, int64_t max_columns) const {
  Sheet sheet{slabs_.fit(max_slabs), rows_.fit(max_rows), columns_.fit(max_columns), {}};
  sheet.cells.assign(sheet.slabs.size(), {sheet.rows.size(), std::vector<Cell>(sheet.columns.size())});
  for (size_t s = 0; s < sheet.slabs.size(); ++s)
    for (size_t r = 0; r < sheet.rows.size(); ++r)
      for (size_t c = 0; c < sheet.columns.size(); ++c) {
        Cell& cell = sheet.cells[s][r][c];
        cell.is_gap = sheet.slabs[s].is_gap || sheet.rows[r].is_gap || sheet.columns[c].is_gap;
        if (cell.is_gap) cell.label = "...";
      }
  fill(sheet);
  std::map<std::string, size_t> colors;
  for (auto& slab : sheet.cells)
    for (auto& row : slab)
      for (Cell& cell : row)
        if (!cell.is_gap && !cell.is_hole) cell.color = colors.emplace(cell.label, colors.size()).first->second;
  return sheet;
}

std::vector<std::string> Grid::notes(const Sheet& sheet) const {
  std::vector<std::string> notes = first_notes();
  if (!has_cells()) {
    notes.push_back("the tensor has no elements");
    return notes;
  }
  note_left_out(slabs_, sheet.slabs, "slabs", notes);
  note_left_out(rows_, sheet.rows, "rows of cells", notes);
  note_left_out(columns_, sheet.columns, "columns of cells", notes);
  const std::vector<std::string> last = last_notes();
  notes.insert(notes.end(), last.begin(), last.end());
  return notes;
}

std::string Grid::dims_note() const {
  const size_t ndim = shape_.size();
  if (ndim <= 2 || (ndim == 3 && slabs_.dim() >= 0)) return "";
  if (slabs_.dim() < 0)
    return fmt::format("dims {} (down) and {} (across) of {} are drawn", rows_.dim(), columns_.dim(), ndim);
  return fmt::format("dims {} (slabs), {} (down) and {} (across) of {} are drawn", slabs_.dim(), rows_.dim(),
                     columns_.dim(), ndim);
}

Grid::Legend Grid::legend(const Sheet& sheet) const {
  std::map<size_t, const Cell*> by_color;
  for (const auto& slab : sheet.cells)
    for (const auto& row : slab)
      for (const Cell& cell : row)
        if (!cell.is_gap && !cell.is_hole) by_color.emplace(cell.color, &cell);
  Legend legend;
  for (const auto& [color, cell] : by_color) {
    if (legend.lines.size() == kLegendLines) {
      legend.left_out = by_color.size() - kLegendLines;
      break;
    }
    legend.lines.push_back({color, cell->is_partial, held_by(cell->label)});
  }
  return legend;
}

std::string rank_label(const std::vector<int64_t>& ranks) {
  const size_t n = ranks.size();
  if (n > kLabelGroups && ranks[1] - ranks[0] > 1) {
    bool is_even = true;
    for (size_t i = 2; i < n && is_even; ++i) is_even = ranks[i] - ranks[i - 1] == ranks[1] - ranks[0];
    if (is_even) return fmt::format("{},{}..{}", ranks[0], ranks[1], ranks[n - 1]);
  }
  std::string text;
  size_t i = 0;
  for (size_t group = 0; i < n && group < kLabelGroups; ++group) {
    size_t end = i + 1;
    while (end < n && ranks[end] - 1 == ranks[end - 1]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (end > i + 1) text += fmt::format("{}{}", end == i + 2 ? "," : "-", ranks[end - 1]);
    i = end;
  }
  return i < n ? fmt::format("{}..{}", text, ranks[n - 1]) : text;
}

std::string and_list(const std::vector<std::string>& words) {
  if (words.size() < 2) return words.empty() ? "" : words.front();
  return fmt::format("{} and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

}  // namespace sherd::detail
