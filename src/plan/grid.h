#pragma once
// Parts of a tensor named by the global rows they hold, dim by dim.

#include <vector>

#include "sherd/layout.h"

namespace sherd::plan {

using sherd::numel;

using RunList = std::vector<Run>;
using RunGrid = std::vector<RunList>;  // one list per dim: the product of the lists

/// The global rows that the rank at `coordinate` holds, per dim, in the order of its local tensor.
RunGrid grid_of(const Layout& layout, const Dims& coordinate);
RunGrid grid_of(const Box& box);

/// The rows in both, ascending.
RunList intersect(const RunList& a, const RunList& b);
RunGrid intersect(const RunGrid& a, const RunGrid& b);

int64_t rows_of(const RunList& runs);
int64_t numel(const RunGrid& grid);
Dims shape_of(const RunGrid& grid);

/// The elements that both hold.
int64_t overlap(const RunGrid& a, const RunGrid& b);

/// Of the elements that are wanted, how many are not held.
inline int64_t missing(const RunGrid& held, const RunGrid& wanted) { return numel(wanted) - overlap(held, wanted); }

/// The `index`-th of `count` parts of `runs`, taken as one row of elements, as torch.chunk cuts.
RunList share_of(const RunList& runs, int64_t count, int64_t index);

/// The `index`-th of `count` parts of a grid, cut along its longest dim.
RunGrid share_of(RunGrid grid, int64_t count, int64_t index);

}  // namespace sherd::plan
