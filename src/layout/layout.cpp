#include "sherd/layout.h"

#include <algorithm>
#include <optional>

namespace sherd {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

// True where the axis leaves less than all, or several runs, of the dim that it cuts.
bool cuts(const Layout& layout, size_t axis) {
  return layout.mesh.axes()[axis].size > 1 && is_shard(layout.placements[axis]);
}

bool is_interleaved(const Placement& p) {
  const auto* strided = std::get_if<StridedShard>(&p);
  return strided && strided->split > 1;
}

// The piece of a Ragged that belongs to `coordinate`: axes to the left that cut the same dim count the outer pieces.
Run ragged_piece(const Layout& layout, size_t axis, std::span<const int64_t> coordinate) {
  const Ragged& ragged = std::get<Ragged>(layout.placements[axis]);
  int64_t piece = 0;
  for (size_t a = 0; a <= axis; ++a)
    if (sharded_dim(layout.placements[a]) == ragged.dim) piece = piece * layout.mesh.axes()[a].size + coordinate[a];
  return {ragged.cuts[at(piece)], ragged.cuts[at(piece + 1)] - ragged.cuts[at(piece)]};
}

// The rows that rank i of n holds of `size` rows under a StridedShard: all chunks but the last are of one size.
int64_t strided_size(int64_t size, int64_t split, int64_t n, int64_t i) {
  const int64_t first = chunk(size, split, 0).size;
  if (first == 0) return 0;
  return size / first * chunk(first, n, i).size + chunk(size % first, n, i).size;
}

int64_t split_of(const Placement& p) {
  const auto* strided = std::get_if<StridedShard>(&p);
  return strided ? strided->split : 1;  // a Shard is a StridedShard of one chunk
}

// The rows of its dim that the axis leaves of the `size` that it finds.
int64_t size_after(const Layout& layout, size_t axis, int64_t size, std::span<const int64_t> coordinate) {
  const Placement& p = layout.placements[axis];
  if (std::holds_alternative<Ragged>(p)) return ragged_piece(layout, axis, coordinate).size;
  return strided_size(size, split_of(p), layout.mesh.axes()[axis].size, coordinate[axis]);
}

// The rows of dim `dim` that the axes before `axis` leave.
int64_t size_before(const Layout& layout, size_t axis, int64_t dim, std::span<const int64_t> coordinate) {
  int64_t size = layout.shape[at(dim)];
  for (size_t a = 0; a < axis; ++a)
    if (cuts(layout, a) && sharded_dim(layout.placements[a]) == dim) size = size_after(layout, a, size, coordinate);
  return size;
}

// The one box of the rank, where no dim is interleaved.
std::optional<Box> single_box(const Layout& layout, std::span<const int64_t> coordinate) {
  Box box{Dims(layout.shape.size(), 0), layout.shape};
  for (size_t a = 0; a < layout.placements.size(); ++a) {
    if (!cuts(layout, a)) continue;
    const Placement& p = layout.placements[a];
    if (is_interleaved(p)) return std::nullopt;
    const size_t d = at(sharded_dim(p));
    if (std::holds_alternative<Ragged>(p)) {
      const Run piece = ragged_piece(layout, a, coordinate);
      box.offset[d] = piece.offset;
      box.size[d] = piece.size;
    } else {
      const Run piece = chunk(box.size[d], layout.mesh.axes()[a].size, coordinate[a]);
      box.offset[d] += piece.offset;
      box.size[d] = piece.size;
    }
  }
  return box;
}

// Copies parts of a list of runs, as if it were one row of elements. Parts must be asked for from left to right.
class RunReader {
 public:
  explicit RunReader(const std::vector<Run>& runs) : runs_(runs) {}

  void copy(Run part, std::vector<Run>& to) {
    while (part.size > 0) {
      while (passed_ + runs_[index_].size <= part.offset) passed_ += runs_[index_++].size;
      const Run& run = runs_[index_];
      const int64_t skip = part.offset - passed_;
      const int64_t size = std::min(part.size, run.size - skip);
      append({run.offset + skip, size}, to);
      part.offset += size;
      part.size -= size;
    }
  }

 private:
  static void append(Run run, std::vector<Run>& to) {
    if (!to.empty() && to.back().offset + to.back().size == run.offset)
      to.back().size += run.size;
    else
      to.push_back(run);
  }

  const std::vector<Run>& runs_;
  size_t index_ = 0;
  int64_t passed_ = 0;  // elements in the runs before index_
};

std::vector<Run> cut_runs(const std::vector<Run>& runs, int64_t split, int64_t n, int64_t i) {
  int64_t size = 0;
  for (const Run& run : runs) size += run.size;
  std::vector<Run> pieces;
  RunReader reader(runs);
  for (int64_t c = 0; c < split; ++c) {
    const Run part = chunk(size, split, c);
    if (part.size == 0) break;
    const Run piece = chunk(part.size, n, i);
    reader.copy({part.offset + piece.offset, piece.size}, pieces);
  }
  return pieces;
}

// Axes of size 1 and Replicates say nothing; a split of 1 is a plain Shard.
Placement plain(const Layout& layout, size_t axis) {
  const Placement& p = layout.placements[axis];
  if (layout.mesh.axes()[axis].size == 1) return Replicate();
  const auto* strided = std::get_if<StridedShard>(&p);
  return strided && strided->split == 1 ? Shard(strided->dim) : p;
}

// Compares dim `d` at every coordinate of the axes that cut it in either layout; the others do not matter.
bool same_runs(const Layout& a, const Layout& b, int64_t d) {
  const auto& axes = a.mesh.axes();
  std::vector<size_t> cutting;
  bool written_alike = true;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Placement pa = plain(a, i), pb = plain(b, i);
    if (sharded_dim(pa) != d && sharded_dim(pb) != d) continue;
    cutting.push_back(i);
    written_alike = written_alike && pa == pb;
  }
  if (written_alike) return true;
  Dims coordinate(axes.size(), 0);
  while (true) {
    if (local_runs(a, d, coordinate) != local_runs(b, d, coordinate)) return false;
    size_t i = cutting.size();
    while (i > 0 && ++coordinate[cutting[i - 1]] == axes[cutting[i - 1]].size) coordinate[cutting[--i]] = 0;
    if (i == 0) return true;
  }
}

}  // namespace

Run chunk(int64_t size, int64_t count, int64_t index) {
  const int64_t full = size / count + (size % count != 0);
  if (full == 0 || index > size / full) return {size, 0};
  return {index * full, std::min(full, size - index * full)};
}

std::vector<Run> local_runs(const Layout& layout, int64_t dim, std::span<const int64_t> coordinate) {
  std::vector<Run> runs;
  if (layout.shape[at(dim)] > 0) runs.push_back({0, layout.shape[at(dim)]});
  for (size_t a = 0; a < layout.placements.size(); ++a) {
    const Placement& p = layout.placements[a];
    if (!cuts(layout, a) || sharded_dim(p) != dim) continue;
    if (std::holds_alternative<Ragged>(p)) {
      const Run piece = ragged_piece(layout, a, coordinate);
      runs.clear();
      if (piece.size > 0) runs.push_back(piece);
    } else {
      runs = cut_runs(runs, split_of(p), layout.mesh.axes()[a].size, coordinate[a]);
    }
  }
  return runs;
}

Holder holder_of(const Layout& layout, int64_t dim, int64_t row) {
  const auto& axes = layout.mesh.axes();
  Holder holder{Dims(axes.size(), -1), row, layout.shape[at(dim)]};
  int64_t size = layout.shape[at(dim)];  // of what the axes so far left
  int64_t& position = holder.local_row;  // in it
  int64_t pieces = 0;                    // for a Ragged: the piece of the axes so far
  for (size_t a = 0; a < axes.size(); ++a) {
    const Placement& p = layout.placements[a];
    if (!cuts(layout, a) || sharded_dim(p) != dim) continue;
    const int64_t n = axes[a].size;
    int64_t& index = holder.coordinate[a];
    if (const auto* ragged = std::get_if<Ragged>(&p)) {
      const auto first = ragged->cuts.begin() + pieces * n;
      index = std::upper_bound(first, first + n, row) - first - 1;
      position = row - first[index];
      size = first[index + 1] - first[index];
      holder.end = std::min(holder.end, row + size - position);
    } else {
      const int64_t split = split_of(p);
      const int64_t full = chunk(size, split, 0).size;
      const Run part = chunk(size, split, position / full);
      const int64_t in_part = position - part.offset;
      index = in_part / chunk(part.size, n, 0).size;
      const Run piece = chunk(part.size, n, index);
      holder.end = std::min(holder.end, row + piece.offset + piece.size - in_part);
      position = position / full * chunk(full, n, index).size + in_part - piece.offset;
      size = strided_size(size, split, n, index);
    }
    pieces = pieces * n + index;
  }
  return holder;
}

Dims local_shape(const Layout& layout, std::span<const int64_t> coordinate) {
  Dims shape = layout.shape;
  for (size_t a = 0; a < layout.placements.size(); ++a) {
    if (!cuts(layout, a)) continue;
    int64_t& size = shape[at(sharded_dim(layout.placements[a]))];
    size = size_after(layout, a, size, coordinate);
  }
  return shape;
}

int64_t global_row(const Layout& layout, int64_t dim, std::span<const int64_t> coordinate, int64_t local_row) {
  int64_t row = local_row;  // in what the axes before `a` left
  for (size_t a = layout.placements.size(); a-- > 0;) {
    const Placement& p = layout.placements[a];
    if (!cuts(layout, a) || sharded_dim(p) != dim) continue;
    if (std::holds_alternative<Ragged>(p)) return ragged_piece(layout, a, coordinate).offset + row;
    const int64_t n = layout.mesh.axes()[a].size;
    const int64_t size = size_before(layout, a, dim, coordinate);
    const int64_t full = chunk(size, split_of(p), 0).size;
    const int64_t per_chunk = chunk(full, n, coordinate[a]).size;
    const int64_t index = per_chunk == 0 ? size / full : std::min(row / per_chunk, size / full);
    const Run part{index * full, std::min(full, size - index * full)};
    row = part.offset + chunk(part.size, n, coordinate[a]).offset + row - index * per_chunk;
  }
  return row;
}

Dims local_offset(const Layout& layout, std::span<const int64_t> coordinate) {
  Dims offset = local_shape(layout, coordinate);
  for (size_t d = 0; d < offset.size(); ++d)
    offset[d] = offset[d] == 0 ? layout.shape[d] : global_row(layout, static_cast<int64_t>(d), coordinate, 0);
  return offset;
}

std::vector<Box> local_boxes(const Layout& layout, std::span<const int64_t> coordinate) {
  std::vector<Box> boxes;
  if (auto box = single_box(layout, coordinate)) {
    if (std::find(box->size.begin(), box->size.end(), 0) == box->size.end()) boxes.push_back(std::move(*box));
    return boxes;
  }
  boxes.emplace_back();
  for (size_t d = 0; d < layout.shape.size(); ++d) {
    std::vector<Box> longer;
    const auto runs = local_runs(layout, static_cast<int64_t>(d), coordinate);
    for (const Box& box : boxes) {
      for (const Run& run : runs) {
        longer.push_back(box);
        longer.back().offset.push_back(run.offset);
        longer.back().size.push_back(run.size);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

bool same_boxes(const Layout& a, const Layout& b) {
  if (a.mesh != b.mesh || a.shape != b.shape) return false;
  for (size_t i = 0; i < a.placements.size(); ++i) {
    const Placement pa = plain(a, i), pb = plain(b, i);
    if ((is_partial(pa) || is_partial(pb)) && pa != pb) return false;
  }
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (!same_runs(a, b, static_cast<int64_t>(d))) return false;
  return true;
}

}  // namespace sherd
