#pragma once
// How a tensor goes from one mesh to another: the plan, which is the same on every rank, and what one rank does in it.

#include <cstdint>
#include <vector>

#include "plan/redistribute.h"
#include "plan/transfer.h"
#include "sherd/layout.h"

namespace sherd::plan {

/// The plan between two layouts of one shape; the second has no Partials. An exchange, or, where the first has
/// Partials, a reduction at ranks of the target, and an exchange among those that want the same rows and shared the
/// work. Costs what a few ranks' parts touch, not what all do.
///
/// `element_size`: of what travels, but for the parts of Partials, whose is options.reduced_size.
///
/// With Prefer::bytes no plan moves less: every rank receives just what it wants and does not have, and every element
/// of a Partial is reduced once, at a rank that wants it and has a part of it where there is one.
Redistribution plan_crossing(const Layout& from, const Layout& to, int64_t element_size,
                             const PlanOptions& options = {});

/// What one rank does where Partials are reduced. Parts are counted in row-major order along the axes that are Partial.
struct Reductions {
  size_t parts = 1;                  // that every element has
  std::vector<RunGrid> pieces = {};  // the rows that this rank reduces; some may be empty
  Transfers contributions = {};      // to part `c` of piece `p`, which has the number p * parts + c
  Transfers results = {};            // from pieces to all that want them; none where each reduces all that it wants
};
/// `shared`: ranks that want the same rows share the work, as where the plan has a second step.
Reductions reductions(const Layout& from, const Layout& to, int64_t rank, bool shared);

/// What one rank does where ranks ask for boxes of a Partial, each reducing its own: `to` names all that all of them
/// want.
struct Contributions {
  struct Piece {
    size_t number = 0;  // of the part of `to` that it lies in
    RunGrid rows;
  };
  size_t parts = 1;                // that every element has
  std::vector<Piece> pieces = {};  // that this rank reduces: what lies at one place, of one part of `to`
  Transfers transfers = {};        // to part `c` of piece `p`, which has the number p * parts + c
  int64_t most_given = 0;          // elements, by any rank
};
Contributions contributions(const Layout& from, const std::vector<RankPart>& to, int64_t rank);

}  // namespace sherd::plan
