#pragma once
// The way from what is sharded now to what is sharded in the end: in one step, or by stops between.

#include <vector>

#include "plan/held.h"
#include "plan/moving_task.h"

namespace sherd::plan {

struct Stop {
  Placements placements;
  Cut cut;
};

/// The stops after `held`, of which the last is `goal`, such that the moves between them take the least time. With
/// Prefer::bytes, of the ways on which ranks receive nothing that they do not want. Nothing where they hold it already.
std::vector<Stop> way_to(const Placements& goal, const Held& held, const MovingTask& task, Prefer prefer);

}  // namespace sherd::plan
