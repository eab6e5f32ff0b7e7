#pragma once
// Which keys the queries of a rank see, of those that another rank holds. Arithmetic alone.

#include <cstdint>
#include <vector>

#include "sherd/layout.h"

namespace sherd::detail {

/// Rows of the local query against rows of a block of keys. All of these queries see all of these keys or, in a
/// triangle, query i the keys 0 to i: there are then no more keys than queries, so that every query sees one at least.
struct AttentionTask {
  Run queries;
  Run keys;
  bool triangle = false;
  bool operator==(const AttentionTask&) const = default;
};

/// The tasks for queries and keys that stand, in ascending order, at these positions of the whole sequence. Between
/// them they cover every pair once in which the query may see the key: all pairs or, in causal attention, those where
/// the key's position is not after the query's.
std::vector<AttentionTask> attention_tasks(const std::vector<Run>& queries, const std::vector<Run>& keys, bool causal);

}  // namespace sherd::detail
