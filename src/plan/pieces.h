#pragma once
// A dim that several ranks hold in pieces, as numbers: who has which rows of it, and who wants which. What operators
// along a sharded dim go by, those that move the rows (tensor/pieces.h) and those that only count them (plan/along.h).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sherd/layout.h"

namespace sherd::plan {

/// Rows [begin, end) of a dim.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
Rows both(const Rows& a, const Rows& b);

/// What each piece's rank wants to have, in this order; pieces may want the same rows.
using WantedRows = std::vector<std::vector<Rows>>;

/// The ranges of a dim, in the order of their ranks' places along the axes that cut it.
struct PieceRows {
  int64_t dim = 0;
  std::vector<int64_t> axes;  // that cut the dim
  std::vector<Rows> rows;     // by piece

  /// Nothing where no more than one rank holds parts of the dim, or a rank holds several ranges of it.
  static std::optional<PieceRows> of(const Layout& layout, int64_t dim);

  size_t count() const { return rows.size(); }
  const Rows& operator[](size_t piece) const { return rows[piece]; }
  /// The piece that the rank at a coordinate has.
  size_t at(const Mesh& mesh, std::span<const int64_t> coordinate) const;
  /// The coordinates of all pieces' ranks that share the other places of `coordinate`.
  std::vector<Dims> members(const Mesh& mesh, const Dims& coordinate) const;
};

int64_t count_of(const std::vector<Rows>& wanted);
/// The rows of `owner` among those that are wanted.
int64_t count_of(const std::vector<Rows>& wanted, const Rows& owner);

/// The rows that a piece wants and does not have: what its rank receives.
int64_t rows_lacking(const PieceRows& pieces, const WantedRows& wanted, size_t piece);
/// Whether any piece wants a row that another has.
bool moves_anything(const PieceRows& pieces, const WantedRows& wanted);

// What pieces want where rows change places. `size` is that of the dim before.

/// Row r comes from row size - 1 - r; each range is still to be turned round.
WantedRows flipped(const PieceRows& pieces, int64_t size);
/// Row r comes from row r - shift, modulo the size: one range or two.
WantedRows rolled(const PieceRows& pieces, int64_t size, int64_t shift);
/// `to` are pieces of a dim in which the rows begin at row `first`; rows before and after these come from elsewhere.
WantedRows set_at(const PieceRows& to, int64_t size, int64_t first);

// The k best of a dim are among the k best of each piece: its candidates, values with their places.

/// As many as each piece has, k at the most.
std::vector<int64_t> candidate_counts(const PieceRows& pieces, int64_t k);
/// Whether candidates, each with a place of 8 bytes, are fewer bytes than all values of a dim of `size` rows.
bool candidates_are_fewer(const std::vector<int64_t>& counts, int64_t size, int64_t element_size);

// Sorting a vector by samples: ranks tell each other a few of their values and agree on who gets which range.

/// Samples per rank: with more of them the parts are more alike in size.
constexpr int64_t kSortSamples = 16;
/// Whether a vector of `size` values is so long that it is sorted by samples.
bool is_sorted_by_samples(const PieceRows& pieces, int64_t size);

}  // namespace sherd::plan
