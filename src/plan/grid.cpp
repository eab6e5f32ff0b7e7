#include "plan/grid.h"

#include <algorithm>

namespace sherd::plan {

RunGrid grid_of(const Layout& layout, const Dims& coordinate) {
  RunGrid grid;
  grid.reserve(layout.shape.size());
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape.size()); ++d) {
    grid.push_back(local_runs(layout, d, coordinate));
  }
  return grid;
}

RunGrid grid_of(const Box& box) {
  RunGrid grid(box.size.size());
  for (size_t d = 0; d < grid.size(); ++d) {
    if (box.size[d] > 0) grid[d].push_back({box.offset[d], box.size[d]});
  }
  return grid;
}

RunList intersect(const RunList& a, const RunList& b) {
  RunList common;
  for (const Run& x : a) {
    for (const Run& y : b) {
      const int64_t begin = std::max(x.offset, y.offset);
      const int64_t end = std::min(x.offset + x.size, y.offset + y.size);
      if (begin < end) common.push_back({begin, end - begin});
    }
  }
  std::sort(common.begin(), common.end(), [](const Run& x, const Run& y) { return x.offset < y.offset; });
  return common;
}

RunGrid intersect(const RunGrid& a, const RunGrid& b) {
  RunGrid grid(a.size());
  for (size_t d = 0; d < a.size(); ++d) grid[d] = intersect(a[d], b[d]);
  return grid;
}

int64_t rows_of(const RunList& runs) {
  int64_t rows = 0;
  for (const Run& run : runs) rows += run.size;
  return rows;
}

Dims shape_of(const RunGrid& grid) {
  Dims shape;
  shape.reserve(grid.size());
  for (const RunList& runs : grid) shape.push_back(rows_of(runs));
  return shape;
}

int64_t numel(const RunGrid& grid) {
  int64_t product = 1;
  for (const RunList& runs : grid) product *= rows_of(runs);
  return product;
}

int64_t overlap(const RunGrid& a, const RunGrid& b) {
  int64_t product = 1;
  for (size_t d = 0; d < a.size() && product > 0; ++d) {
    int64_t rows = 0;
    for (const Run& x : a[d]) {
      for (const Run& y : b[d]) {
        rows += std::max<int64_t>(0, std::min(x.offset + x.size, y.offset + y.size) - std::max(x.offset, y.offset));
      }
    }
    product *= rows;
  }
  return product;
}

RunList share_of(const RunList& runs, int64_t count, int64_t index) {
  Run part = chunk(rows_of(runs), count, index);
  RunList share;
  for (const Run& run : runs) {
    if (part.size == 0) break;
    if (part.offset >= run.size) {
      part.offset -= run.size;
      continue;
    }
    const int64_t size = std::min(part.size, run.size - part.offset);
    share.push_back({run.offset + part.offset, size});
    part = {0, part.size - size};
  }
  return share;
}

RunGrid share_of(RunGrid grid, int64_t count, int64_t index) {
  if (count == 1) return grid;
  const auto longest = std::max_element(grid.begin(), grid.end(),
                                        [](const RunList& a, const RunList& b) { return rows_of(a) < rows_of(b); });
  if (longest == grid.end()) {  // a scalar is the first share's
    return index == 0 ? grid : RunGrid{{}};
  }
  *longest = share_of(*longest, count, index);
  return grid;
}

}  // namespace sherd::plan
