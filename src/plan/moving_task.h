#pragma once
// What does not change while plans of one redistribution are compared.

#include <cstdint>
#include <vector>

#include "plan/redistribute.h"
#include "sherd/costs.h"
#include "sherd/layout.h"

namespace sherd::plan {

struct MovingTask {
  const Mesh& mesh;
  const Dims& shape;
  int64_t moved_size;  // of an element
  int64_t reduced_size;
  const Placements& from;
  const Placements& to;
  const std::vector<Dims>& places;  // where plans are measured
  CommCosts costs;
  int64_t staging_bytes;
};

}  // namespace sherd::plan
