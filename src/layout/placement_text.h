#pragma once
// The parts of the placement notation that the tensor notation shares.

#include <string>

#include "layout/scanner.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// "split=2", "cuts=0:3:10", or "" for a plain Shard.
std::string shard_option_text(const Placement& p);
/// Reads such an option (the scanner stands at its name) into a placement of `dim`.
Placement scan_shard_option(Scanner& scan, int64_t dim);
/// Reads "P(sum)" from the P on.
Placement scan_partial(Scanner& scan);

/// to_string, with the middle of long lists of cuts left out: for error texts.
std::string brief(const Placement& p);
std::string brief(const Placements& placements);

}  // namespace sherd::detail
