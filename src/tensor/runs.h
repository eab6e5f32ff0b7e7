#pragma once
// Parts of a local tensor named by the global rows they hold.

#include <ATen/core/Tensor.h>

#include <vector>

#include "sherd/layout.h"

namespace sherd::detail {

using RunList = std::vector<Run>;
using RunGrid = std::vector<RunList>;  // one list per dim: the product of the lists

/// The global rows that the rank at `coordinate` holds, per dim.
RunGrid grid_of(const Layout& layout, const Dims& coordinate);
/// The rows in both, ascending.
RunGrid intersect(const RunGrid& a, const RunGrid& b);
int64_t numel(const RunGrid& grid);
Dims shape_of(const RunGrid& grid);

/// The part `rows` of a local tensor that holds `held`. A view where every dim is one piece.
at::Tensor take(const at::Tensor& local, const RunGrid& held, const RunGrid& rows);
/// Writes `block`, of shape_of(rows), to where a local tensor that holds `held` has these rows.
void put(const at::Tensor& local, const RunGrid& held, const RunGrid& rows, const at::Tensor& block);

}  // namespace sherd::detail
