#include "plan/pieces.h"

#include <algorithm>

namespace sherd::plan {

Rows both(const Rows& a, const Rows& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::optional<PieceRows> PieceRows::of(const Layout& layout, int64_t dim) {
  if (dim < 0 || dim >= static_cast<int64_t>(layout.shape.size())) return std::nullopt;
  PieceRows result{.dim = dim, .axes = {}, .rows = {}};
  for (int64_t axis = 0; axis < layout.mesh.ndim(); ++axis) {
    const Placement& p = layout.placements[static_cast<size_t>(axis)];
    if (sharded_dim(p) != dim) continue;
    if (std::holds_alternative<StridedShard>(p)) return std::nullopt;
    result.axes.push_back(axis);
  }
  const std::vector<Dims> members = result.members(layout.mesh, Dims(static_cast<size_t>(layout.mesh.ndim()), 0));
  if (members.size() < 2) return std::nullopt;
  for (const Dims& member : members) {
    const std::vector<Run> runs = local_runs(layout, dim, member);
    if (runs.size() > 1) return std::nullopt;
    const int64_t end = result.rows.empty() ? 0 : result.rows.back().end;
    if (!runs.empty() && runs[0].offset != end) return std::nullopt;
    result.rows.push_back(runs.empty() ? Rows{end, end} : Rows{runs[0].offset, runs[0].offset + runs[0].size});
  }
  return result;
}

size_t PieceRows::at(const Mesh& mesh, std::span<const int64_t> coordinate) const {
  size_t piece = 0;
  for (const int64_t axis : axes) {
    piece = piece * static_cast<size_t>(mesh.size(axis)) + static_cast<size_t>(coordinate[static_cast<size_t>(axis)]);
  }
  return piece;
}

std::vector<Dims> PieceRows::members(const Mesh& mesh, const Dims& coordinate) const {
  std::vector<Dims> result = {coordinate};
  for (const int64_t axis : axes) {
    std::vector<Dims> further;
    for (const Dims& member : result) {
      for (int64_t i = 0; i < mesh.size(axis); ++i) {
        further.push_back(member);
        further.back()[static_cast<size_t>(axis)] = i;
      }
    }
    result = std::move(further);
  }
  return result;
}

int64_t count_of(const std::vector<Rows>& wanted) {
  int64_t rows = 0;
  for (const Rows& range : wanted) rows += range.size();
  return rows;
}

int64_t count_of(const std::vector<Rows>& wanted, const Rows& owner) {
  int64_t rows = 0;
  for (const Rows& range : wanted) rows += both(range, owner).size();
  return rows;
}

int64_t rows_lacking(const PieceRows& pieces, const WantedRows& wanted, size_t piece) {
  return count_of(wanted[piece]) - count_of(wanted[piece], pieces[piece]);
}

bool moves_anything(const PieceRows& pieces, const WantedRows& wanted) {
  for (size_t p = 0; p < pieces.count(); ++p) {
    if (rows_lacking(pieces, wanted, p) > 0) return true;
  }
  return false;
}

WantedRows flipped(const PieceRows& pieces, int64_t size) {
  WantedRows wanted;
  for (const Rows& rows : pieces.rows) wanted.push_back({{size - rows.end, size - rows.begin}});
  return wanted;
}

WantedRows rolled(const PieceRows& pieces, int64_t size, int64_t shift) {
  WantedRows wanted;
  for (const Rows& rows : pieces.rows) {
    wanted.emplace_back();
    if (rows.size() == 0) continue;
    const int64_t begin = ((rows.begin - shift) % size + size) % size;
    const int64_t end = begin + rows.size();
    wanted.back().push_back({begin, std::min(end, size)});
    if (end > size) wanted.back().push_back({0, end - size});
  }
  return wanted;
}

WantedRows set_at(const PieceRows& to, int64_t size, int64_t first) {
  const auto within = [&](int64_t row) { return std::clamp<int64_t>(row - first, 0, size); };
  WantedRows wanted;
  for (const Rows& rows : to.rows) wanted.push_back({{within(rows.begin), within(rows.end)}});
  return wanted;
}

std::vector<int64_t> candidate_counts(const PieceRows& pieces, int64_t k) {
  std::vector<int64_t> counts;
  for (const Rows& rows : pieces.rows) counts.push_back(std::min(k, rows.size()));
  return counts;
}

bool candidates_are_fewer(const std::vector<int64_t>& counts, int64_t size, int64_t element_size) {
  int64_t total = 0;
  for (const int64_t n : counts) total += n;
  return total * (element_size + 8) < size * element_size;
}

bool is_sorted_by_samples(const PieceRows& pieces, int64_t size) {
  if (size < 4 * kSortSamples * static_cast<int64_t>(pieces.count())) return false;
  // A piece without rows has no samples.
  return std::none_of(pieces.rows.begin(), pieces.rows.end(), [](const Rows& rows) { return rows.size() == 0; });
}

}  // namespace sherd::plan
