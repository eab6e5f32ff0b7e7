#pragma once
// Boxes: the one thing every sharding is made of.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sherd {

using Dims = std::vector<int64_t>;

/// An axis-aligned part of a tensor: rows [offset[d], offset[d] + size[d]) of every dim d.
struct Box {
  Dims offset;
  Dims size;
  bool operator==(const Box&) const = default;
};

int64_t numel(const Dims& shape);
inline int64_t numel(const Box& box) { return numel(box.size); }

/// The common part of two boxes of the same ndim; nothing where it would hold no element.
/// Two 0-D boxes intersect in the 0-D box.
std::optional<Box> intersect(const Box& a, const Box& b);

/// True when every element of `inner` is in `outer`. An empty box is inside every box.
bool contains(const Box& outer, const Box& inner);

/// What keeps a set of boxes from tiling a shape exactly once.
struct TilingFault {
  enum class Kind { outside, overlap, hole } kind;
  Box box;            // outside: the box; overlap: the doubly covered part; hole: an uncovered part
  size_t first = 0;   // outside, overlap: index of a box concerned
  size_t second = 0;  // overlap: index of the other
  bool operator==(const TilingFault&) const = default;
};

/// Nothing when every element of `shape` is in exactly one box; otherwise one fault. Empty boxes are ignored.
/// A box of another ndim or with a negative size counts as outside.
/// O(n log n) for the boxes of a grid; where the boxes cannot be taken apart by straight cuts, O(n^2).
std::optional<TilingFault> find_tiling_fault(std::span<const Box> boxes, const Dims& shape);

/// Two boxes of one ndim that have an element in common, and what they have; nothing where there are none.
std::optional<TilingFault> find_overlap(std::span<const Box> boxes);

/// Throws std::invalid_argument "<operation>: boxes overlap | leave a hole | ..." with both boxes and a help line.
void check_tiling(std::string_view operation, std::span<const Box> boxes, const Dims& shape);

/// "[0:4, 2:6]"; "[]" for 0-D.
std::string to_string(const Box& box);
/// "[4, 6]".
std::string to_string(const Dims& dims);

Box parse_box(std::string_view text);
Dims parse_dims(std::string_view text);

}  // namespace sherd
