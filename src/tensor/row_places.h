#pragma once
// Where the global rows of a tensor lie in a rank's part of it.

#include <vector>

#include "plan/grid.h"

namespace sherd::detail {

/// Where `rows` lie in a dim whose local rows are `held`, which has them all: (local offset, size), in the order of
/// `rows`.
plan::RunList positions(const plan::RunList& held, const plan::RunList& rows);

/// The same for each dim.
std::vector<plan::RunList> places_of(const plan::RunGrid& held, const plan::RunGrid& rows);

}  // namespace sherd::detail
