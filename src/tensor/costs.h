#pragma once

#include "sherd/costs.h"

namespace sherd::detail {

/// What set_costs said, else SHERD_COSTS, else the defaults.
CommCosts current_costs();
/// How often they were set: plans by other costs do not count any more, on whichever rank they are still known.
uint64_t costs_version();

}  // namespace sherd::detail
