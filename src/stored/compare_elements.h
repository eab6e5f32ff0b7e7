#pragma once
// Elements of two tensors, compared as numbers.

#include <cstddef>
#include <cstdint>

#include "format/dtype.h"

namespace sherd::stored {

struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

struct ElementDifferences {
  int64_t count = 0;   // elements that differ
  int64_t nans = 0;    // of these, NaN on one side only
  int64_t first = -1;  // the number of the first that differs
  double max_absolute = 0;
  double max_relative = 0;  // to the larger of the two
};

/// Elements that lie in memory.
struct ElementsOf {
  format::DType dtype;
  const std::byte* elements;
};

/// Adds what differs among `count` elements, the first of which is number `number`. Equal: |a - b| <= absolute +
/// relative * |b|, both NaN, both the same infinity, equal bytes. Complex numbers by their distance.
void compare_elements(const ElementsOf& a, const ElementsOf& b, int64_t count, int64_t number,
                      const Tolerance& tolerance, ElementDifferences& differences);

}  // namespace sherd::stored
