#pragma once
// A dim as consecutive bands, each of which the same ranks hold.

#include <cstdint>
#include <vector>

#include "sherd/layout.h"

namespace sherd::detail {

/// Consecutive rows of one dim; or, for a gap, the bands that are left out of the picture.
struct Band {
  int64_t begin = 0;
  int64_t end = 0;
  Dims coordinate = {};  // as in Holder; empty where the tensor has no layout
  bool is_gap = false;
};

/// The bands of one dim, first to last. Only the first `kept` are stored, and the very last.
class Bands {
 public:
  /// dim -1: one band that stands for no dim.
  Bands(const Layout& layout, int64_t dim, int64_t kept);
  /// Between the numbers of `cuts`, which ascend from 0 to the dim's size. dim -1: as above.
  Bands(const std::vector<int64_t>& cuts, int64_t dim, int64_t kept);

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

}  // namespace sherd::detail
