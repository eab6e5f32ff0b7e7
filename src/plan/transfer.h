#pragma once
// Who sends which rows to whom when a tensor goes from one mesh to another, or from a layout to boxes and back. A rank
// finds its own transfers; the cost depends on the parts they touch, not on the number of ranks.

#include <cstdint>
#include <vector>

#include "plan/grid.h"
#include "sherd/layout.h"

namespace sherd::plan {

/// Rows that a rank holds or wants; a rank may have several such parts, `number` tells them apart.
struct RankPart {
  int64_t rank = 0;
  size_t number = 0;
  RunGrid rows;
};

/// Rows of the giver's part `from` that become rows of the taker's part `to`.
struct Transfer {
  int64_t rank = 0;  // the other side
  size_t from = 0;
  size_t to = 0;
  RunGrid rows;
};

/// What one rank sends and receives, in the order of the other side's rank; between two ranks both list the same
/// transfers in the same order. A rank gives to itself what it has already.
struct Transfers {
  std::vector<Transfer> gives;
  std::vector<Transfer> takes;
};
/// Puts them into that order.
Transfers sorted(Transfers transfers);

// The layouts have no Partials. Where several ranks hold the same rows, a taker gets them from itself if it is one of
// them, else from the one that stands where the taker stands along the axes that do not cut, else they take turns.

/// What the taker of `wanted` gets, and from whom; `turn` as in plan/places.h.
std::vector<Transfer> takes_of(const Layout& from, const RankPart& wanted, int64_t turn);

Transfers transfers(const Layout& from, const Layout& to, int64_t rank);
/// To boxes that the ranks ask for.
Transfers transfers(const Layout& from, const std::vector<RankPart>& to, int64_t rank);
/// From boxes that tile the shape.
Transfers transfers(const std::vector<RankPart>& from, const Layout& to, int64_t rank);
/// From boxes that tile the shape to boxes that the ranks ask for. Each list names all parts of all ranks.
Transfers transfers(const std::vector<RankPart>& from, const std::vector<RankPart>& to, int64_t rank);

}  // namespace sherd::plan
