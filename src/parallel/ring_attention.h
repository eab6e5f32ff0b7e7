#pragma once
// Attention whose keys and values go round a ring of ranks.

#include <ATen/core/Tensor.h>

#include <vector>

#include "sherd/group.h"
#include "sherd/layout.h"

namespace sherd::detail {

/// What every rank of the ring knows of all.
struct Ring {
  Group group;
  std::vector<std::vector<Run>> queries;  // of each rank: the positions of its rows, ascending
  std::vector<std::vector<Run>> keys;
  bool causal = false;
  double scale = 1;
  /// Where defined, and then the attention is not causal: [batch, heads, this rank's queries, the keys of all], or ones
  /// in their places. True where a query sees a key or, of numbers, what is added to its score. Has no gradient.
  at::Tensor mask = {};
};

/// This rank's rows of attention. Query [batch, heads, rows, width] and so on are its own rows, none where it has none;
/// batch, heads and widths are alike on all ranks of the ring. Differentiable once.
at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, Ring ring);

}  // namespace sherd::detail
