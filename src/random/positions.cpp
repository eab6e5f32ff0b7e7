#include "random/positions.h"

#include <algorithm>

namespace sherd::detail {
namespace {

// One dim's rows on this rank.
Positions::Dim rows_of(const std::vector<Run>& runs, int64_t stride) {
  Positions::Dim rows{.size = 0, .stride = stride, .first = runs.empty() ? 0 : runs.front().offset};
  bool follow = true;
  for (const Run& run : runs) {
    follow &= run.offset == rows.first + rows.size;
    rows.size += run.size;
  }
  if (follow) return rows;
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.size; ++i) rows.rows.push_back(run.offset + i);
  }
  return rows;
}

// `runs_of(d)`: the rows of dim d that are here.
template <class RunsOf>
Positions positions_from(const Dims& shape, int64_t tail, const RunsOf& runs_of) {
  Positions positions;
  int64_t stride = tail;
  int64_t whole = tail;  // the elements of the dims behind, while this rank has all of them
  for (auto d = static_cast<int64_t>(shape.size()); d-- > 0;) {
    const int64_t size = shape[static_cast<size_t>(d)];
    Positions::Dim rows = rows_of(runs_of(d), stride);
    stride *= size;
    if (positions.dims.empty() && rows.rows.empty() && rows.size == size) {
      whole *= size;
      continue;
    }
    if (positions.dims.empty() && rows.rows.empty()) {
      rows = {.size = rows.size * whole, .stride = 1, .first = rows.first * whole};
    } else if (positions.dims.empty() && whole != 1) {
      positions.dims.push_back({.size = whole, .stride = 1});
    }
    positions.dims.push_back(std::move(rows));
  }
  if (positions.dims.empty()) return whole_positions(whole);
  std::reverse(positions.dims.begin(), positions.dims.end());
  return positions;
}

}  // namespace

int64_t Positions::numel() const {
  int64_t count = 1;
  for (const Dim& dim : dims) count *= dim.size;
  return count;
}

Positions::Stretch Positions::stretch_at(int64_t local) const {
  Stretch stretch{.global = 0, .count = 1};
  for (size_t d = dims.size(); d-- > 0;) {
    const Dim& dim = dims[d];
    const int64_t row = local % dim.size;
    local /= dim.size;
    stretch.global += (dim.rows.empty() ? dim.first + row : dim.rows[static_cast<size_t>(row)]) * dim.stride;
    if (d + 1 < dims.size()) continue;
    int64_t end = row + 1;
    if (dim.rows.empty()) {
      end = dim.size;
    } else {
      while (end < dim.size && dim.rows[static_cast<size_t>(end)] == dim.rows[static_cast<size_t>(end - 1)] + 1) ++end;
    }
    stretch.count = end - row;
  }
  return stretch;
}

Positions positions_of(const Layout& layout, std::span<const int64_t> coordinate, int64_t tail) {
  return positions_from(layout.shape, tail, [&](int64_t d) { return local_runs(layout, d, coordinate); });
}

Positions positions_of(const Dims& shape, const Box& box, int64_t tail) {
  return positions_from(shape, tail, [&](int64_t d) {
    const Run run{box.offset[static_cast<size_t>(d)], box.size[static_cast<size_t>(d)]};
    return run.size == 0 ? std::vector<Run>() : std::vector<Run>{run};
  });
}

Positions whole_positions(int64_t numel) { return {.dims = {{.size = numel, .stride = 1}}}; }

}  // namespace sherd::detail
