#pragma once
// Where the elements of a local tensor stand in the global one.

#include <cstdint>
#include <span>
#include <vector>

#include "sherd/layout.h"

namespace sherd::detail {

/// The elements of a rank's local tensor, in its row-major order, as places of the global tensor in row-major order.
/// Dims are merged where a place follows from the one before.
struct Positions {
  struct Dim {
    int64_t size = 0;                // of the local tensor
    int64_t stride = 0;              // of the global one
    int64_t first = 0;               // the global row of local row 0
    std::vector<int64_t> rows = {};  // of every local row, where they do not follow each other
  };
  std::vector<Dim> dims;  // the last one has stride 1, where there is any

  /// The place of a local element, and how many from it on lie together in both tensors.
  struct Stretch {
    int64_t global = 0;
    int64_t count = 0;
  };

  int64_t numel() const;
  Stretch stretch_at(int64_t local) const;

  /// f(local, global, count) for the stretches of local elements [begin, end). Places ascend.
  template <class F>
  void for_each_stretch(int64_t begin, int64_t end, F f) const;
};

/// Of the rank at `coordinate`. `tail` is the number of further elements that each one consists of: 2 for complex.
Positions positions_of(const Layout& layout, std::span<const int64_t> coordinate, int64_t tail = 1);
/// Of a tensor that holds one box of the global one.
Positions positions_of(const Dims& shape, const Box& box, int64_t tail = 1);
/// Of a tensor that is not distributed.
Positions whole_positions(int64_t numel);

template <class F>
void Positions::for_each_stretch(int64_t begin, int64_t end, F f) const {
  while (begin < end) {
    const Stretch stretch = stretch_at(begin);
    const int64_t count = stretch.count < end - begin ? stretch.count : end - begin;
    f(begin, stretch.global, count);
    begin += count;
  }
}

}  // namespace sherd::detail
