#pragma once
// How a tensor gets from one placement list to another on one mesh: a short list of steps. Pure data: the same on
// every rank, computed without talking.

#include <cstdint>
#include <string>
#include <vector>

#include "sherd/layout.h"

namespace sherd::plan {

enum class Action : uint8_t {
  all_reduce,      // Partial on `axis` becomes whole
  reduce_scatter,  // Partial on `axis` becomes sharded there
  exchange,        // ranks along `axes` send each other the parts of boxes that change hands
  slice,           // every rank keeps a part of what it has
  keep_one,        // whole on `axis` becomes Partial: the first rank keeps the value, the others the neutral element
};

struct Step {
  Action action = Action::slice;
  std::vector<int64_t> axes;  // mesh axes concerned, ascending; one but for exchange and slice
  Placements after;
  int64_t bytes = 0;  // received by a rank, on average over the corners of the mesh
};

struct Redistribution {
  std::vector<Step> steps;
  int64_t bytes = 0;
};

/// `from` and `to` are checked placements of a tensor of `shape` on `mesh`.
Redistribution plan_redistribution(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from,
                                   const Placements& to);

/// "all_reduce@tp".
std::string to_string(const Step& step, const Mesh& mesh);

/// "all_reduce@tp 4.0 KiB, slice@dp".
std::string to_string(const Redistribution& plan, const Mesh& mesh);

/// "12 B", "4.0 KiB", "1.5 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace sherd::plan
