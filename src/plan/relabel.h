#pragma once
// Which rank should stand where in a mesh, given what each has already.

#include "sherd/layout.h"

namespace sherd::plan {

/// `to.mesh` with its ranks in the order in which they receive the fewest elements, given that they hold `from`. The
/// best of all orders; for more than 256 ranks a good one.
Mesh relabel(const Layout& from, const Layout& to);

}  // namespace sherd::plan
