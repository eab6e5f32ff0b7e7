#pragma once
// Which placements an operator runs with: for each mesh axis, the way to shard its factors that moves the fewest bytes.

#include <cstdint>
#include <optional>
#include <vector>

#include "rules/bound_rule.h"
#include "sherd/layout.h"

namespace sherd::plan {

struct InputTensor {
  Dims shape;
  int64_t element_size = 4;
  Placements placements;
};

/// What one mesh axis does: it shards a factor, or lets inputs stay Partial, or neither.
struct AxisUse {
  int factor = -1;
  uint64_t partial_inputs = 0;  // bit i: input i
};

struct Choice {
  std::vector<Placements> inputs;   // one per input of the rule
  std::vector<Placements> outputs;  // one per output
  int64_t bytes = 0;                // moved to bring the inputs there, per rank
  bool masked = false;              // a `mask` factor is sharded: indices are local ones
  std::vector<AxisUse> axes;        // one per mesh axis
};

/// The choice for a call. `keep`: placements that the first output must have (an in-place operator's self).
/// Nothing where no choice keeps them; without `keep` there is always one.
/// Ties go to the choice that changes the fewest inputs, then to the one whose factor comes first.
std::optional<Choice> propagate(const rules::BoundRule& rule, const Mesh& mesh, const std::vector<InputTensor>& inputs,
                                const std::optional<Placements>& keep = std::nullopt);

}  // namespace sherd::plan
