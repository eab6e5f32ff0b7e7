#pragma once
// One plan of a redistribution, or the best of several.

#include <cstdint>

#include "plan/moving_task.h"
#include "plan/redistribute.h"

namespace sherd::plan {

struct Candidate {
  Redistribution plan;
  int64_t received = 0;  // bytes, at all measured places: exact where the plan's are an average
  double seconds = 0;
};

/// One step after the other, nothing compared.
Redistribution simple_plan(const MovingTask& task);

/// Prefer::bytes: the plan with the fewest bytes, of equals the fastest; Prefer::latency: the fastest.
Candidate best_plan(const MovingTask& task, Prefer prefer);

}  // namespace sherd::plan
