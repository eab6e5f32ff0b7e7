#include <fmt/format.h>

#include <algorithm>

#include "picture/grid.h"

namespace sherd::detail {
namespace {

constexpr int64_t kMaxListedRanks = 4096;  // of one cell
constexpr int64_t kMaxScannedRanks = 1 << 20;
constexpr int64_t kMaxPieces = 64;  // that the legend counts
constexpr size_t kMaxCaption = 160;
constexpr int64_t kMaxTerms = 4;  // written out in "0+1+2+3"

std::vector<bool> cut_dims(const Layout& layout) {
  std::vector<bool> is_cut(layout.shape.size(), false);
  for (size_t a = 0; a < layout.placements.size(); ++a)
    if (layout.mesh.axes()[a].size > 1 && is_shard(layout.placements[a]))
      is_cut[static_cast<size_t>(sharded_dim(layout.placements[a]))] = true;
  return is_cut;
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

// The places along some axes of a mesh, the others held fast, in row-major order.
class Places {
 public:
  Places(const Mesh& mesh, std::vector<size_t> axes) : mesh_(mesh), axes_(std::move(axes)) {
    for (const size_t axis : axes_) count_ *= mesh_.axes()[axis].size;
  }
  int64_t count() const { return count_; }
  Dims at(Dims coordinate, int64_t index) const {
    for (size_t i = axes_.size(); i-- > 0;) {
      const int64_t size = mesh_.axes()[axes_[i]].size;
      coordinate[axes_[i]] = index % size;
      index /= size;
    }
    return coordinate;
  }

 private:
  const Mesh& mesh_;
  std::vector<size_t> axes_;
  int64_t count_ = 1;
};

// "0,1", "0-3".
std::string ranks_text(const Mesh& mesh, const Places& places, const Dims& coordinate) {
  const auto rank = [&](int64_t i) { return mesh.rank_at(places.at(coordinate, i)); };
  if (places.count() > kMaxListedRanks && mesh.has_default_ranks())
    return fmt::format("{},{}..{}", rank(0), rank(1), rank(places.count() - 1));
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < places.count(); ++i) ranks.push_back(rank(i));
  std::sort(ranks.begin(), ranks.end());
  return rank_label(ranks);
}

// "0+4": their values together are the value.
std::string terms_text(const Mesh& mesh, const Places& terms, const Dims& coordinate) {
  const auto rank = [&](int64_t i) { return mesh.rank_at(terms.at(coordinate, i)); };
  if (terms.count() > kMaxTerms) return fmt::format("{}+..+{}", rank(0), rank(terms.count() - 1));
  std::string text;
  for (int64_t i = 0; i < terms.count(); ++i) text += fmt::format("{}{}", i ? "+" : "", rank(i));
  return text;
}

}  // namespace

LayoutGrid::LayoutGrid(const Layout& layout, int64_t kept)
    : LayoutGrid(layout, drawn_dims(layout.shape, cut_dims(layout)), kept) {}

LayoutGrid::LayoutGrid(const Layout& layout, const DrawnDims& dims, int64_t kept)
    : Grid(layout.shape, Bands(layout, dims.slab, kept), Bands(layout, dims.row, kept),
           Bands(layout, dims.column, kept)),
      layout_(layout) {}

std::string LayoutGrid::caption() const {
  const TensorText tensor{"", layout_.shape, layout_.placements};
  std::string text = fmt::format("{} on {}", to_string(tensor, layout_.mesh), to_string(layout_.mesh));
  if (text.size() > kMaxCaption) text.replace(kMaxCaption, std::string::npos, "...");
  return text;
}

void LayoutGrid::fill(Sheet& sheet) const {
  const auto& axes = layout_.mesh.axes();
  bool is_partial = false;
  for (size_t a = 0; a < axes.size(); ++a)
    is_partial = is_partial || (axes[a].size > 1 && sherd::is_partial(layout_.placements[a]));
  for (size_t s = 0; s < sheet.slabs.size(); ++s)
    for (size_t r = 0; r < sheet.rows.size(); ++r)
      for (size_t c = 0; c < sheet.columns.size(); ++c) {
        Cell& cell = sheet.cells[s][r][c];
        if (cell.is_gap) continue;
        Dims coordinate(axes.size(), -1);
        for (const Band* band : {&sheet.slabs[s], &sheet.rows[r], &sheet.columns[c]})
          for (size_t a = 0; a < axes.size(); ++a) coordinate[a] = std::max(coordinate[a], band->coordinate[a]);
        cell.label = label_of(coordinate);
        cell.is_partial = is_partial;
        holders_.emplace(cell.label, std::move(coordinate));
      }
}

// Where no band fixes an axis, all of its ranks hold the cell (or parts of it, in dims that are not drawn).
std::string LayoutGrid::label_of(const Dims& coordinate) const {
  const auto& axes = layout_.mesh.axes();
  std::vector<size_t> partial, copied;
  Dims first = coordinate;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (coordinate[a] >= 0) continue;
    first[a] = 0;
    if (axes[a].size > 1) (is_partial(layout_.placements[a]) ? partial : copied).push_back(a);
  }
  const Places copies(layout_.mesh, copied), terms(layout_.mesh, partial);
  if (partial.empty()) return ranks_text(layout_.mesh, copies, first);
  const auto copy = [&](int64_t i) { return terms_text(layout_.mesh, terms, copies.at(first, i)); };
  if (copies.count() > 3) return fmt::format("{},{}..{}", copy(0), copy(1), copy(copies.count() - 1));
  std::string text;
  for (int64_t i = 0; i < copies.count(); ++i) text += (i ? "," : "") + copy(i);
  return text;
}

std::vector<std::string> LayoutGrid::first_notes() const {
  std::vector<std::string> notes;
  for (size_t a = 0; a < layout_.placements.size(); ++a) {
    const auto* partial = std::get_if<Partial>(&layout_.placements[a]);
    if (!partial) continue;
    const std::string axis = layout_.mesh.axis_label(static_cast<int64_t>(a));
    notes.push_back(fmt::format("{}@{}: the value is the {} of what the ranks along {} hold",
                                to_string(layout_.placements[a]), axis, reduction_text(partial->op), axis));
  }
  std::string dims = dims_note();
  if (dims.empty()) return notes;
  notes.push_back(std::move(dims));
  const std::vector<bool> is_cut = cut_dims(layout_);
  for (size_t d = 0; d < shape().size(); ++d) {
    const int64_t dim = static_cast<int64_t>(d);
    if (is_drawn(dim) || !is_cut[d]) continue;
    std::vector<std::string> axes;
    for (size_t a = 0; a < layout_.placements.size(); ++a)
      if (sharded_dim(layout_.placements[a]) == dim) axes.push_back(layout_.mesh.axis_label(static_cast<int64_t>(a)));
    notes.push_back(
        fmt::format("dim {} is cut, too, by {}: the ranks of a cell hold different parts of it", d, and_list(axes)));
  }
  return notes;
}

std::vector<std::string> LayoutGrid::last_notes() const {
  std::vector<int64_t> empty;
  for (int64_t i = 0; i < std::min(layout_.mesh.size(), kMaxScannedRanks); ++i) {
    const Dims coordinate = layout_.mesh.coordinate_at(i);
    if (numel(local_shape(layout_, coordinate)) == 0) empty.push_back(layout_.mesh.rank_at(coordinate));
  }
  if (empty.empty()) return {};
  std::sort(empty.begin(), empty.end());
  return {empty.size() == 1 ? fmt::format("rank {} holds nothing", rank_label(empty))
                            : fmt::format("ranks {} hold nothing", rank_label(empty))};
}

std::vector<std::string> LayoutGrid::axis_lines() const {
  std::vector<std::string> lines;
  const auto& axes = layout_.mesh.axes();
  for (size_t a = 0; a < axes.size(); ++a) {
    const Placement& placement = layout_.placements[a];
    if (axes[a].size == 1 || is_partial(placement)) continue;
    const std::string axis = layout_.mesh.axis_label(static_cast<int64_t>(a));
    if (is_replicate(placement)) {
      lines.push_back(fmt::format("{}: {} copies, whose ranks share a cell", axis, axes[a].size));
      continue;
    }
    const int64_t dim = sharded_dim(placement);
    int64_t ways = 1;
    for (size_t b = 0; b < axes.size(); ++b)
      if (sharded_dim(layout_.placements[b]) == dim) ways *= axes[b].size;
    std::string how;
    if (const auto* strided = std::get_if<StridedShard>(&placement); strided != nullptr && strided->split > 1)
      how = fmt::format(", strided: a rank's rows lie in up to {} pieces", strided->split);
    else if (std::holds_alternative<Ragged>(placement))
      how = ", ragged: where the user says";
    else if (layout_.shape[static_cast<size_t>(dim)] % ways != 0)
      how = ", unevenly: the last ranks have fewer rows";
    lines.push_back(fmt::format("{}: cuts dim {} in {}{}", axis, dim, axes[a].size, how));
  }
  return lines;
}

std::string LayoutGrid::held_by(const std::string& label) const {
  const bool is_one = label.find_first_of(",-+.") == std::string::npos;
  const std::string who = fmt::format("{} {}", is_one ? "rank" : "ranks", label);
  const std::vector<bool> is_cut = cut_dims(layout_);
  for (size_t d = 0; d < is_cut.size(); ++d)
    if (is_cut[d] && !is_drawn(static_cast<int64_t>(d))) return who;
  int64_t pieces = 1;
  for (const Placement& placement : layout_.placements)
    if (const auto* strided = std::get_if<StridedShard>(&placement)) pieces *= std::min(strided->split, kMaxPieces);
  if (pieces >= kMaxPieces) return who + ": many pieces";
  Dims coordinate = holders_.at(label);
  for (int64_t& place : coordinate) place = std::max<int64_t>(place, 0);
  const std::vector<Box> boxes = local_boxes(layout_, coordinate);
  std::string text = who + ":";
  for (size_t i = 0; i < std::min<size_t>(boxes.size(), 2); ++i) text += " " + to_string(boxes[i]);
  if (boxes.size() > 2) text += fmt::format(" and {} more", boxes.size() - 2);
  return text;
}

}  // namespace sherd::detail
