#pragma once
// Rows that change ranks and, in backward, come back.

#include <ATen/core/Tensor.h>

#include <vector>

#include "sherd/group.h"

namespace sherd::detail {

/// The first give[0] rows go to rank 0 of the group, the next give[1] to rank 1, ...; take[i] rows come from rank i, in
/// rank order. Differentiable any number of times.
at::Tensor route_rows(const at::Tensor& rows, const Group& group, const std::vector<int64_t>& give,
                      const std::vector<int64_t>& take);

/// `tensor`, of which `others` are said to be inputs: their gradient is zero through it, but never missing. So all
/// ranks make the same calls in backward, even one whose function did not use an input.
at::Tensor tied_to(const at::Tensor& tensor, const std::vector<at::Tensor>& others);

}  // namespace sherd::detail
