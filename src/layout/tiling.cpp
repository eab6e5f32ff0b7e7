// Do boxes tile a shape exactly once? A region is cut where no box crosses, along one dim after another, until each
// part holds one box. The boxes of a grid come apart completely, in one sort per dim; what cannot be cut (a pinwheel,
// boxes that overlap) is compared pair by pair.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "sherd/box.h"
#include "sherd/error.h"

namespace sherd {
namespace {

__extension__ typedef __int128 Volume;  // a product of sizes; 64 bits can be too few for a sum of boxes

int64_t end_of(const Box& box, size_t d) { return box.offset[d] + box.size[d]; }

bool is_empty(const Box& box) {
  return std::any_of(box.size.begin(), box.size.end(), [](int64_t size) { return size == 0; });
}

bool fits(const Box& box, const Dims& shape) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (box.offset[d] < 0 || box.offset[d] > shape[d] || box.size[d] > shape[d] - box.offset[d]) return false;
  return true;
}

bool is_well_formed(const Box& box, size_t ndim) {
  return box.offset.size() == ndim && box.size.size() == ndim &&
         std::all_of(box.size.begin(), box.size.end(), [](int64_t size) { return size >= 0; });
}

Volume volume_of(const Dims& size) {
  Volume volume = 1;
  for (int64_t s : size) volume *= s;
  return volume;
}

Volume common_volume(const Box& a, const Box& b) {
  Volume volume = 1;
  for (size_t d = 0; d < a.size.size(); ++d)
    volume *= std::max<int64_t>(0, std::min(end_of(a, d), end_of(b, d)) - std::max(a.offset[d], b.offset[d]));
  return volume;
}

Box slab(const Box& region, size_t d, int64_t begin, int64_t end) {
  Box part = region;
  part.offset[d] = begin;
  part.size[d] = end - begin;
  return part;
}

class TilingCheck {
 public:
  explicit TilingCheck(std::span<const Box> boxes) : boxes_(boxes) {}

  std::optional<TilingFault> run(std::vector<size_t> indices, const Dims& shape) {
    order_ = std::move(indices);
    parts_.push_back({0, order_.size(), Box{Dims(shape.size(), 0), shape}, 0});
    while (!parts_.empty()) {
      const Part part = std::move(parts_.back());
      parts_.pop_back();
      if (auto fault = check(part)) return fault;
    }
    return std::nullopt;
  }

 private:
  // Boxes order_[first, last) lie inside `region` and no other box touches it.
  struct Part {
    size_t first, last;
    Box region;
    size_t dim;  // the dim to try to cut first: the one after the dim that made this part
  };

  std::optional<TilingFault> check(const Part& part) {
    const size_t count = part.last - part.first;
    if (count == 0) return hole(part.region);
    if (count == 1 && boxes_[order_[part.first]] == part.region) return std::nullopt;
    const size_t ndim = part.region.size.size();
    for (size_t i = 0; i < ndim; ++i) {
      const size_t d = (part.dim + i) % ndim;
      const size_t parts_before = parts_.size();
      if (auto fault = cut(part, d)) return fault;
      if (parts_.size() > parts_before) return std::nullopt;
    }
    return check_pairs(part);
  }

  // Adds the parts into which dim d of `part` falls; none where it does not. A gap between them is a hole.
  std::optional<TilingFault> cut(const Part& part, size_t d) {
    const auto first = order_.begin() + static_cast<int64_t>(part.first);
    const auto last = order_.begin() + static_cast<int64_t>(part.last);
    const auto before = [&](size_t a, size_t b) { return boxes_[a].offset[d] < boxes_[b].offset[d]; };
    if (!std::is_sorted(first, last, before)) std::stable_sort(first, last, before);

    const int64_t region_end = end_of(part.region, d);
    int64_t begin = part.region.offset[d];  // where the part being collected begins
    int64_t end = begin;                    // where the boxes seen so far end
    size_t from = part.first;
    for (size_t i = part.first; i < part.last; ++i) {
      const Box& box = boxes_[order_[i]];
      if (box.offset[d] > end) return hole(slab(part.region, d, end, box.offset[d]));
      if (box.offset[d] == end && i > from) {
        parts_.push_back({from, i, slab(part.region, d, begin, end), d + 1});
        from = i;
        begin = end;
      }
      end = std::max(end, end_of(box, d));
    }
    if (end < region_end) return hole(slab(part.region, d, end, region_end));
    if (from > part.first) parts_.push_back({from, part.last, slab(part.region, d, begin, end), d + 1});
    return std::nullopt;
  }

  // No dim can be cut: compare the boxes that meet in the last dim sorted, then look for what none of them covers.
  std::optional<TilingFault> check_pairs(const Part& part) {
    const size_t d = part.region.size.empty() ? 0 : (part.dim + part.region.size.size() - 1) % part.region.size.size();
    std::vector<size_t> open;  // boxes that reach beyond the offset of the current one in dim d
    Volume covered = 0;
    for (size_t i = part.first; i < part.last; ++i) {
      const size_t current = order_[i];
      const Box& box = boxes_[current];
      size_t kept = 0;
      for (size_t other : open) {
        if (!box.size.empty() && end_of(boxes_[other], d) <= box.offset[d]) continue;
        open[kept++] = other;
        if (auto common = intersect(boxes_[other], box))
          return TilingFault{TilingFault::Kind::overlap, *common, std::min(other, current), std::max(other, current)};
      }
      open.resize(kept);
      open.push_back(current);
      covered += volume_of(box.size);
    }
    if (covered == volume_of(part.region.size)) return std::nullopt;
    return hole(find_hole(part));
  }

  // The boxes of `part` do not overlap and leave something uncovered. Halves the region at edges of boxes, keeping a
  // half that is not full, until no box is left in it.
  Box find_hole(const Part& part) const {
    std::vector<size_t> inside(order_.begin() + static_cast<int64_t>(part.first),
                               order_.begin() + static_cast<int64_t>(part.last));
    Box region = part.region;
    while (!inside.empty()) {
      const auto [d, at] = middle_edge(region, inside);
      Box half = slab(region, d, region.offset[d], at);
      Volume covered = 0;
      for (size_t i : inside) covered += common_volume(boxes_[i], half);
      region = covered < volume_of(half.size) ? half : slab(region, d, at, end_of(region, d));
      std::erase_if(inside, [&](size_t i) { return common_volume(boxes_[i], region) == 0; });
    }
    return region;
  }

  // The dim with the most edges of boxes strictly inside `region`, and the middle one of them.
  std::pair<size_t, int64_t> middle_edge(const Box& region, const std::vector<size_t>& inside) const {
    size_t best = 0;
    std::vector<int64_t> best_edges;
    for (size_t d = 0; d < region.size.size(); ++d) {
      std::vector<int64_t> edges;
      for (size_t i : inside)
        for (int64_t edge : {boxes_[i].offset[d], end_of(boxes_[i], d)})
          if (edge > region.offset[d] && edge < end_of(region, d)) edges.push_back(edge);
      if (edges.size() <= best_edges.size()) continue;
      best = d;
      best_edges = std::move(edges);
    }
    const auto middle = best_edges.begin() + static_cast<int64_t>(best_edges.size() / 2);
    std::nth_element(best_edges.begin(), middle, best_edges.end());
    return {best, *middle};
  }

  static TilingFault hole(Box box) { return {TilingFault::Kind::hole, std::move(box)}; }

  std::span<const Box> boxes_;
  std::vector<size_t> order_;  // indices of the boxes; every part is a range of it
  std::vector<Part> parts_;    // still to be checked
};

std::string code_of(const Box& box) {
  std::string offset = to_string(box.offset), size = to_string(box.size);
  return fmt::format("Box{{{{{}}}, {{{}}}}}", offset.substr(1, offset.size() - 2), size.substr(1, size.size() - 2));
}

// What is left of `box` without `part`, if that is a box.
std::optional<Box> remainder(const Box& box, const Box& part) {
  std::optional<size_t> different;
  for (size_t d = 0; d < box.size.size(); ++d) {
    if (box.offset[d] == part.offset[d] && box.size[d] == part.size[d]) continue;
    if (different) return std::nullopt;
    different = d;
  }
  if (!different) return std::nullopt;
  const size_t d = *different;
  if (part.offset[d] == box.offset[d]) return slab(box, d, end_of(part, d), end_of(box, d));
  if (end_of(part, d) == end_of(box, d)) return slab(box, d, box.offset[d], part.offset[d]);
  return std::nullopt;
}

std::string box_text(const Box& box, size_t ndim) {
  if (is_well_formed(box, ndim)) return to_string(box);
  return fmt::format("offset {}, size {}", to_string(box.offset), to_string(box.size));
}

std::string outside_help(const Box& box, size_t index, const Dims& shape) {
  if (!is_well_formed(box, shape.size()))
    return fmt::format("give box {} an offset and a size of {} dims, no size negative", index, shape.size());
  const auto inside = intersect(box, Box{Dims(shape.size(), 0), shape});
  if (!inside) return fmt::format("remove box {}", index);
  return fmt::format("make box {} {}", index, code_of(*inside));
}

std::string overlap_help(std::span<const Box> boxes, const TilingFault& fault) {
  for (size_t index : {fault.second, fault.first})
    if (auto rest = remainder(boxes[index], fault.box)) return fmt::format("make box {} {}", index, code_of(*rest));
  if (boxes[fault.second] == fault.box) return fmt::format("remove box {}", fault.second);
  return fmt::format("take {} out of box {} or box {}", to_string(fault.box), fault.first, fault.second);
}

}  // namespace

std::optional<TilingFault> find_tiling_fault(std::span<const Box> boxes, const Dims& shape) {
  std::vector<size_t> indices;
  indices.reserve(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const bool well_formed = is_well_formed(boxes[i], shape.size());
    if (well_formed && is_empty(boxes[i])) continue;
    if (!well_formed || !fits(boxes[i], shape)) return TilingFault{TilingFault::Kind::outside, boxes[i], i, i};
    indices.push_back(i);
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::nullopt;
  return TilingCheck(boxes).run(std::move(indices), shape);
}

std::optional<TilingFault> find_overlap(std::span<const Box> boxes) {
  // Along the dim with the most different offsets; only boxes that reach into each other there are compared.
  size_t dim = 0;
  size_t most = 0;
  for (size_t d = 0; !boxes.empty() && d < boxes[0].size.size(); ++d) {
    std::vector<int64_t> offsets;
    for (const Box& box : boxes) offsets.push_back(box.offset[d]);
    std::sort(offsets.begin(), offsets.end());
    const auto different = static_cast<size_t>(std::unique(offsets.begin(), offsets.end()) - offsets.begin());
    if (different > most) dim = d, most = different;
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!is_empty(boxes[i])) order.push_back(i);
  }
  if (most > 0) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return boxes[a].offset[dim] < boxes[b].offset[dim]; });
  }
  std::vector<size_t> open;
  for (const size_t i : order) {
    if (most > 0) {
      std::erase_if(open, [&](size_t k) { return end_of(boxes[k], dim) <= boxes[i].offset[dim]; });
    }
    for (const size_t k : open) {
      if (auto common = intersect(boxes[k], boxes[i])) {
        return TilingFault{TilingFault::Kind::overlap, *std::move(common), std::min(i, k), std::max(i, k)};
      }
    }
    open.push_back(i);
  }
  return std::nullopt;
}

void check_tiling(std::string_view operation, std::span<const Box> boxes, const Dims& shape) {
  const auto fault = find_tiling_fault(boxes, shape);
  if (!fault) return;
  switch (fault->kind) {
    case TilingFault::Kind::outside:
      throw std::invalid_argument(ErrorText(operation, "a box reaches outside the tensor")
                                      .fact(fmt::format("box {}", fault->first), box_text(fault->box, shape.size()))
                                      .fact("shape", to_string(shape))
                                      .help(outside_help(fault->box, fault->first, shape)));
    case TilingFault::Kind::overlap:
      throw std::invalid_argument(ErrorText(operation, "boxes overlap")
                                      .fact(fmt::format("box {}", fault->first), to_string(boxes[fault->first]))
                                      .fact(fmt::format("box {}", fault->second), to_string(boxes[fault->second]))
                                      .fact("both hold", to_string(fault->box))
                                      .help(overlap_help(boxes, *fault)));
    case TilingFault::Kind::hole:
      throw std::invalid_argument(ErrorText(operation, "boxes leave a hole")
                                      .fact("hole", to_string(fault->box))
                                      .fact("shape", to_string(shape))
                                      .fact("boxes", std::to_string(boxes.size()))
                                      .help("add " + code_of(fault->box)));
  }
}

}  // namespace sherd
