#include "picture/bands.h"

#include <algorithm>

namespace sherd::detail {

Bands::Bands(const Layout& layout, int64_t dim, int64_t kept)
    : dim_(dim), size_(dim < 0 ? 1 : layout.shape[static_cast<size_t>(dim)]) {
  if (dim < 0) {
    last_ = {0, 1, Dims(layout.placements.size(), -1)};
    first_ = {last_};
    total_ = 1;
    return;
  }
  const auto close_last = [&] {
    if (total_ > 0 && total_ <= kept) first_.push_back(last_);
  };
  for (int64_t row = 0; row < size_ && total_ < kMaxCounted;) {
    Holder holder = holder_of(layout, dim, row);
    const int64_t end = holder.end;
    if (total_ > 0 && last_.coordinate == holder.coordinate) {
      last_.end = end;
    } else {
      close_last();
      last_ = {row, end, std::move(holder.coordinate)};
      ++total_;
    }
    row = end;
  }
  close_last();
}

Bands::Bands(const std::vector<int64_t>& cuts, int64_t dim, int64_t kept)
    : dim_(dim), size_(dim < 0 ? 1 : cuts.back()), total_(static_cast<int64_t>(cuts.size()) - 1) {
  if (dim < 0) {
    last_ = {0, 1};
    first_ = {last_};
    total_ = 1;
    return;
  }
  if (total_ == 0) return;
  for (size_t i = 0; i + 1 < cuts.size() && static_cast<int64_t>(i) < kept; ++i)
    first_.push_back({cuts[i], cuts[i + 1]});
  last_ = {cuts[cuts.size() - 2], cuts.back()};
}

std::vector<Band> Bands::fit(int64_t limit) const {
  limit = std::max<int64_t>(limit, 3);
  if (total_ <= std::min(limit, static_cast<int64_t>(first_.size()))) return first_;
  const bool reached_end = last_.end == size_;
  const int64_t shown = std::min(limit - (reached_end ? 2 : 1), static_cast<int64_t>(first_.size()));
  std::vector<Band> bands(first_.begin(), first_.begin() + shown);
  Band gap{bands.back().end, reached_end ? last_.begin : size_, {}, true};
  bands.push_back(std::move(gap));
  if (reached_end) bands.push_back(last_);
  return bands;
}

}  // namespace sherd::detail
