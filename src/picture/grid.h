#pragma once
// What the drawings share: a layout as rows and columns of cells, and what is to be said below them.

#include <cstdint>
#include <string>
#include <vector>

#include "sherd/layout.h"

namespace sherd::detail {

/// Consecutive rows of one dim that one shard holds; or, for a gap, the bands that are left out of the picture.
struct Band {
  int64_t begin = 0;
  int64_t end = 0;
  Dims coordinate;  // as in Holder
  bool is_gap = false;
};

/// The bands of one dim, first to last. Only the first `kept` are stored, and the very last.
class Bands {
 public:
  /// dim -1: one band that stands for no dim.
  Bands(const Layout& layout, int64_t dim, int64_t kept);

  int64_t dim() const { return dim_; }
  /// How many there are; counting ends at kMaxCounted.
  int64_t total() const { return total_; }
  /// At most `limit` of them (three at least): the first ones, a gap and the last where they are more.
  std::vector<Band> fit(int64_t limit) const;

  static constexpr int64_t kMaxCounted = int64_t{1} << 20;

 private:
  int64_t dim_;
  int64_t size_;
  int64_t total_ = 0;
  std::vector<Band> first_;
  Band last_;
};

struct Cell {
  std::string label;  // "0-3"; "..." in a gap
  size_t color = 0;   // the same for the same ranks
  bool is_gap = false;
};

class Grid {
 public:
  /// Keeps up to `kept` bands per dim.
  Grid(const Layout& layout, int64_t kept);

  /// "[8@dp, 6@tp] on [dp=2, tp=2]".
  std::string caption() const;
  /// False where the tensor has no element: there is nothing to draw but the notes.
  bool has_cells() const;
  const Bands& rows() const { return rows_; }
  const Bands& columns() const { return columns_; }
  std::vector<std::vector<Cell>> cells(const std::vector<Band>& rows, const std::vector<Band>& columns) const;
  /// The lines below the picture: Partials, dims that are not drawn, ranks that hold nothing, bands left out.
  std::vector<std::string> notes(const std::vector<Band>& rows, const std::vector<Band>& columns) const;

 private:
  std::string label_of(const Band& row, const Band& column) const;
  void note_partials(std::vector<std::string>& notes) const;
  void note_dims(std::vector<std::string>& notes) const;
  void note_empty(std::vector<std::string>& notes) const;

  const Layout& layout_;
  Bands rows_, columns_;
};

/// Ranks in ascending order as "0,1", "0-3", "0,4,8 +13"; `total` counts those that are not listed, too.
std::string rank_list(const std::vector<int64_t>& ranks, int64_t total);

}  // namespace sherd::detail
