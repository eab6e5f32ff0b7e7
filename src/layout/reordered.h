#pragma once
#include <cstdint>
#include <vector>

#include "sherd/placement.h"

namespace sherd::detail {

/// The placements of tensor.permute(order), of a tensor that has these.
Placements reordered(Placements placements, const std::vector<int64_t>& order);

}  // namespace sherd::detail
