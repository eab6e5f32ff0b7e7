#pragma once

#include <cstdint>
#include <optional>

#include "sherd/costs.h"

namespace sherd::detail {

struct CostsNow {
  CommCosts costs;
  uint64_t version = 0;  // how often they were set: plans by other costs do not count any more
};

/// What set_costs said, else SHERD_COSTS, else the defaults; or those of this thread's CostsScope.
CostsNow costs_now();
inline CommCosts current_costs() { return costs_now().costs; }
/// The version alone, at no cost.
uint64_t costs_version();

/// While it lives, this thread goes by these costs, whatever is set meanwhile.
class CostsScope {
 public:
  explicit CostsScope(const CostsNow& costs);
  ~CostsScope();
  CostsScope(const CostsScope&) = delete;
  CostsScope& operator=(const CostsScope&) = delete;

 private:
  std::optional<CostsNow> outer_;
};

}  // namespace sherd::detail
