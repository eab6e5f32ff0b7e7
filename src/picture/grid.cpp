#include "picture/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace sherd::detail {
namespace {

constexpr size_t kLabelGroups = 3;         // "0,4,8 +13"
constexpr int64_t kMaxListedRanks = 4096;  // of one cell
constexpr int64_t kMaxScannedRanks = 1 << 20;
constexpr size_t kMaxCaption = 160;

bool is_cut(const Layout& layout, int64_t dim) {
  for (size_t a = 0; a < layout.placements.size(); ++a)
    if (layout.mesh.axes()[a].size > 1 && is_shard(layout.placements[a]) && sharded_dim(layout.placements[a]) == dim)
      return true;
  return false;
}

struct DrawnDims {
  int64_t row = -1;
  int64_t column = -1;
};

// One or two dims are all drawn. Of more, the two largest that are cut; failing those, the last ones.
DrawnDims drawn_dims(const Layout& layout) {
  const int64_t ndim = static_cast<int64_t>(layout.shape.size());
  if (ndim <= 2) return {ndim - 2 < 0 ? -1 : 0, ndim - 1};
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < ndim; ++d) dims.push_back(d);
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
    const bool a_cut = is_cut(layout, a), b_cut = is_cut(layout, b);
    if (a_cut != b_cut) return a_cut;
    if (!a_cut) return a > b;
    return layout.shape[static_cast<size_t>(a)] > layout.shape[static_cast<size_t>(b)];
  });
  return {std::min(dims[0], dims[1]), std::max(dims[0], dims[1])};
}

std::string and_list(const std::vector<std::string>& words) {
  if (words.size() < 2) return words.empty() ? "" : words.front();
  return fmt::format("{} and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

std::string reduction_text(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "average";
    case ReduceOp::min:
      return "minimum";
    case ReduceOp::max:
      return "maximum";
    case ReduceOp::product:
      return "product";
    case ReduceOp::band:
      return "bitwise and";
    case ReduceOp::bor:
      return "bitwise or";
    case ReduceOp::bxor:
      return "bitwise xor";
  }
  return to_string(op);
}

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

std::string rank_list(const std::vector<int64_t>& ranks, int64_t total) {
  std::string text;
  size_t i = 0;
  for (size_t group = 0; i < ranks.size() && group < kLabelGroups; ++group) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] - 1 == ranks[end - 1]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (end > i + 1) text += fmt::format("{}{}", end == i + 2 ? "," : "-", ranks[end - 1]);
    i = end;
  }
  const int64_t more = total - static_cast<int64_t>(i);
  return more > 0 ? fmt::format("{} +{}", text, more) : text;
}

Bands::Bands(const Layout& layout, int64_t dim, int64_t kept)
    : dim_(dim), size_(dim < 0 ? 1 : layout.shape[static_cast<size_t>(dim)]) {
  if (dim < 0) {
    last_ = {0, 1, Dims(layout.placements.size(), -1)};
    first_ = {last_};
    total_ = 1;
    return;
  }
  const auto close_last = [&] {
    if (total_ > 0 && total_ <= kept) first_.push_back(last_);
  };
  for (int64_t row = 0; row < size_ && total_ < kMaxCounted;) {
    Holder holder = holder_of(layout, dim, row);
    const int64_t end = holder.end;
    if (total_ > 0 && last_.coordinate == holder.coordinate) {
      last_.end = end;
    } else {
      close_last();
      last_ = {row, end, std::move(holder.coordinate)};
      ++total_;
    }
    row = end;
  }
  close_last();
}

std::vector<Band> Bands::fit(int64_t limit) const {
  limit = std::max<int64_t>(limit, 3);
  if (total_ <= std::min(limit, static_cast<int64_t>(first_.size()))) return first_;
  const bool reached_end = last_.end == size_;
  const int64_t shown = std::min(limit - (reached_end ? 2 : 1), static_cast<int64_t>(first_.size()));
  std::vector<Band> bands(first_.begin(), first_.begin() + shown);
  Band gap{bands.back().end, reached_end ? last_.begin : size_, {}, true};
  bands.push_back(std::move(gap));
  if (reached_end) bands.push_back(last_);
  return bands;
}

Grid::Grid(const Layout& layout, int64_t kept)
    : layout_(layout), rows_(layout, drawn_dims(layout).row, kept), columns_(layout, drawn_dims(layout).column, kept) {}

std::string Grid::caption() const {
  const TensorText tensor{"", layout_.shape, layout_.placements};
  std::string text = fmt::format("{} on {}", to_string(tensor, layout_.mesh), to_string(layout_.mesh));
  if (text.size() > kMaxCaption) text.replace(kMaxCaption, std::string::npos, "...");
  return text;
}

bool Grid::has_cells() const { return numel(layout_.shape) > 0; }

std::string Grid::label_of(const Band& row, const Band& column) const {
  // Where neither band fixes an axis, all of its ranks hold the cell (or parts of it, in dims that are not drawn).
  const auto& axes = layout_.mesh.axes();
  Dims coordinate(axes.size(), 0);
  std::vector<size_t> free;
  int64_t total = 1;
  for (size_t a = 0; a < axes.size(); ++a) {
    coordinate[a] = std::max(row.coordinate[a], column.coordinate[a]);
    if (coordinate[a] >= 0) continue;
    coordinate[a] = 0;
    free.push_back(a);
    total *= axes[a].size;
  }
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < std::min(total, kMaxListedRanks); ++i) {
    int64_t rest = i;
    for (size_t f = free.size(); f-- > 0;) {
      coordinate[free[f]] = rest % axes[free[f]].size;
      rest /= axes[free[f]].size;
    }
    ranks.push_back(layout_.mesh.rank_at(coordinate));
  }
  std::sort(ranks.begin(), ranks.end());
  return rank_list(ranks, total);
}

std::vector<std::vector<Cell>> Grid::cells(const std::vector<Band>& rows, const std::vector<Band>& columns) const {
  std::map<std::string, size_t> colors;
  std::vector<std::vector<Cell>> cells;
  for (const Band& row : rows) {
    cells.emplace_back();
    for (const Band& column : columns) {
      Cell cell;
      cell.is_gap = row.is_gap || column.is_gap;
      cell.label = cell.is_gap ? "..." : label_of(row, column);
      if (!cell.is_gap) cell.color = colors.emplace(cell.label, colors.size()).first->second;
      cells.back().push_back(std::move(cell));
    }
  }
  return cells;
}

std::vector<std::string> Grid::notes(const std::vector<Band>& rows, const std::vector<Band>& columns) const {
  std::vector<std::string> notes;
  note_partials(notes);
  note_dims(notes);
  if (!has_cells()) {
    notes.push_back("the tensor has no elements");
    return notes;
  }
  note_left_out(rows_, rows, "rows of cells", notes);
  note_left_out(columns_, columns, "columns of cells", notes);
  note_empty(notes);
  return notes;
}

void Grid::note_partials(std::vector<std::string>& notes) const {
  for (size_t a = 0; a < layout_.placements.size(); ++a) {
    const auto* partial = std::get_if<Partial>(&layout_.placements[a]);
    if (!partial) continue;
    const std::string axis = layout_.mesh.axis_label(static_cast<int64_t>(a));
    notes.push_back(fmt::format("{}@{}: the value is the {} of what the ranks along {} hold",
                                to_string(layout_.placements[a]), axis, reduction_text(partial->op), axis));
  }
}

void Grid::note_dims(std::vector<std::string>& notes) const {
  const size_t ndim = layout_.shape.size();
  if (ndim <= 2) return;
  notes.push_back(fmt::format("dims {} and {} of {} are drawn", rows_.dim(), columns_.dim(), ndim));
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t dim = static_cast<int64_t>(d);
    if (dim == rows_.dim() || dim == columns_.dim() || !is_cut(layout_, dim)) continue;
    std::vector<std::string> axes;
    for (size_t a = 0; a < layout_.placements.size(); ++a)
      if (sharded_dim(layout_.placements[a]) == dim) axes.push_back(layout_.mesh.axis_label(static_cast<int64_t>(a)));
    notes.push_back(
        fmt::format("dim {} is cut, too, by {}: the ranks of a cell hold different parts of it", d, and_list(axes)));
  }
}

void Grid::note_empty(std::vector<std::string>& notes) const {
  std::vector<int64_t> empty;
  for (int64_t i = 0; i < std::min(layout_.mesh.size(), kMaxScannedRanks); ++i) {
    const Dims coordinate = layout_.mesh.coordinate_at(i);
    if (numel(local_shape(layout_, coordinate)) == 0) empty.push_back(layout_.mesh.rank_at(coordinate));
  }
  if (empty.empty()) return;
  std::sort(empty.begin(), empty.end());
  const std::string ranks = rank_list(empty, static_cast<int64_t>(empty.size()));
  notes.push_back(empty.size() == 1 ? fmt::format("rank {} holds nothing", ranks)
                                    : fmt::format("ranks {} hold nothing", ranks));
}

}  // namespace sherd::detail
