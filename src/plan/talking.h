#pragma once
// Who has to talk so that what ranks hold becomes something else.

#include "plan/axis_groups.h"
#include "plan/held.h"
#include "sherd/layout.h"

namespace sherd::plan {

/// The axes whose ranks send each other parts: along them lies all that a rank lacks, and no less of them will do. `of`
/// gives mesh and shape.
AxisSet talking_axes(const Layout& of, const Placements& before, const Cut& cut, const Placements& after,
                     const Cut& cut_after);

}  // namespace sherd::plan
