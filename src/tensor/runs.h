#pragma once
// Parts of a local tensor named by the global rows they hold.

#include <ATen/core/Tensor.h>

#include "plan/grid.h"

namespace sherd::detail {

using plan::RunGrid;
using plan::RunList;

/// The part `rows` of a local tensor that holds `held`. A view where every dim is one piece.
at::Tensor take(const at::Tensor& local, const RunGrid& held, const RunGrid& rows);
/// Writes `block`, of shape_of(rows), to where a local tensor that holds `held` has these rows.
void put(const at::Tensor& local, const RunGrid& held, const RunGrid& rows, const at::Tensor& block);

/// The other way round: `block` becomes those rows. As take, without a copy on the way.
void get(const at::Tensor& local, const RunGrid& held, const RunGrid& rows, const at::Tensor& block);

}  // namespace sherd::detail
