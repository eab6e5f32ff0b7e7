#pragma once
// A plan looked at once more: plans are compared by what ranks at a few places hold, and carried out by all.

#include <optional>
#include <vector>

#include "plan/held.h"
#include "plan/redistribute.h"

namespace sherd::plan {

/// One of the places at which the moves of a plan on one mesh, taken together, bring more than the last of them needs
/// there; nothing where there is none. `before`: what ranks hold at first.
std::optional<Dims> wasteful_place(const Redistribution& plan, const Held& before, const std::vector<Dims>& places);

/// The plan with what its exchanges bring to ranks at these places, on average.
Redistribution recounted(Redistribution plan, const Held& before, int64_t element_size,
                         const std::vector<Dims>& places);

}  // namespace sherd::plan
