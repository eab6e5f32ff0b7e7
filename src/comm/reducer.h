#pragma once
// Reductions of pieces of plain memory, one from each rank.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "comm/reduce.h"

namespace sherd::detail {

class Reducer {
 public:
  /// For numbers of the dtype of `like`.
  Reducer(const at::Tensor& like, ReduceOp op, int ranks);
  /// Where the piece of a rank lies. All are set before into() is called.
  const void*& part(int rank) { return parts_[static_cast<size_t>(rank)]; }
  /// Reduces the pieces, of `bytes` each, in the order of the ranks. `out` may be one of them.
  void into(std::byte* out, size_t bytes) const;

 private:
  c10::ScalarType dtype_;
  ReduceOp op_;
  size_t element_;
  ReduceLoop loop_;
  std::vector<const void*> parts_;
};

}  // namespace sherd::detail
