#pragma once

#include "sherd/costs.h"

namespace sherd::detail {

/// What set_costs said, else SHERD_COSTS, else the defaults.
CommCosts current_costs();

}  // namespace sherd::detail
