#pragma once
// How a tensor gets from one placement list to another: a short list of steps. Pure data: the same on every rank,
// computed without talking. Here on one mesh; plan/crossing.h plans the way to another one.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/held.h"
#include "sherd/costs.h"
#include "sherd/layout.h"

namespace sherd::plan {

enum class Action : uint8_t {
  all_reduce,      // Partial on `axes` becomes whole
  reduce_scatter,  // Partial on `axes` is reduced, each rank along them getting some rows of the result
  exchange,        // ranks along `axes` send each other the parts of boxes that change hands
  slice,           // every rank keeps a part of what it has
  keep_one,        // whole on `axis` becomes Partial: the first rank keeps the value, the others the neutral element
  // To another mesh. What follows them happens there.
  cross,      // ranks of the two meshes send each other the parts of boxes that change hands
  reduce_to,  // ranks of the other mesh get the parts of a Partial and reduce them
};

struct Step {
  Action action = Action::slice;
  std::vector<int64_t> axes = {};  // mesh axes whose ranks talk; for slice and keep_one, those concerned
  Placements after = {};           // on one mesh
  Cut cut = {};                    // of `after`
  int64_t bytes = 0;               // received by a rank of the mesh where it goes, on average
  int64_t messages = 0;            // sent by a rank at most; received, where it goes to another mesh
};

struct Redistribution {
  std::vector<Step> steps;
  int64_t bytes = 0;
  int64_t messages = 0;
  // Where messages were worth more than bytes: what the plan with the fewest bytes would need.
  int64_t fewest_bytes = 0;
  int64_t its_messages = 0;
};

enum class Prefer : uint8_t {
  automatic,  // bytes; latency for tensors under kSmallTensor
  bytes,      // the fewest bytes, then the least time by the cost model
  latency,    // the least time by the cost model
  simple,     // one step after the other, nothing compared: for weighing many moves of which few are made
};
inline constexpr int64_t kSmallTensor = 64 * 1024;

struct PlanOptions {
  Prefer prefer = Prefer::automatic;
  CommCosts costs = {};
  int64_t reduced_size = 0;  // of an element where Partials are reduced, in bytes; 0: the one it moves with
  int64_t staging_bytes = int64_t{64} << 20;  // more of a tensor does not lie between two moves: one makes do, then
};

/// `from` and `to` are checked placements of a tensor of `shape` on `mesh`. `element_size`: of what travels.
///
/// With Prefer::bytes no plan moves less: every element of a Partial is reduced once, at a rank that wants it where one
/// of those that have it does, and every rank receives just what it wants and does not have. Among plans with equal
/// bytes it is a fast one: axes share a call, or have one each, as costs less.
Redistribution plan_redistribution(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from,
                                   const Placements& to, const PlanOptions& options = {});

/// By the cost model.
double seconds(const Redistribution& plan, const CommCosts& costs);

// `mesh` is the one where it goes.

/// "all_reduce@tp", "exchange to [dp=2]".
std::string to_string(const Step& step, const Mesh& mesh);

/// "all_reduce@tp 4.0 KiB, slice@dp".
std::string to_string(const Redistribution& plan, const Mesh& mesh);

/// "12 B", "4.0 KiB", "1.5 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace sherd::plan
