#pragma once
// Attention over a sequence that is cut over the ranks of a mesh axis. Modules stay as they are: inside a scope,
// torch::scaled_dot_product_attention on DTensors exchanges blocks instead of gathering the sequence.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

struct ContextParallelOptions {
  enum class Method : uint8_t {
    /// Keys and values go round the ranks, a block at a time; a rank never holds more than two blocks of them.
    ring,
    /// Heads for sequence: every rank gets all positions of some heads. Fewer messages; the heads must divide.
    all_to_all,
  };
  Method method = Method::ring;
};

/// While it lives, attention in this thread on DTensors [batch, heads, length, width] whose dim 2 is cut by `axis` (a
/// mesh of one axis: mesh["cp"]) runs without gathering the sequence, with the values and gradients of one device. Any
/// cut will do, uneven ones included; the causal mask follows the positions that the placements say. A mask of one's
/// own is a DTensor of the same mesh, or plain and the same on every rank; each rank needs the rows of its queries.
/// Other calls and, for the ring, those with dropout or a mask that has a gradient go the ordinary way. A second
/// derivative through a ring throws c10::NotImplementedError. Scopes nest; the innermost counts.
class ContextParallel {
 public:
  explicit ContextParallel(const DeviceMesh& axis, const ContextParallelOptions& options = {});
  ~ContextParallel();
  ContextParallel(const ContextParallel&) = delete;
  ContextParallel& operator=(const ContextParallel&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// How to cut a sequence of `length` positions over `ranks` so that causal attention gives all of them equal work: each
/// holds every n-th of up to n * 16 pieces. The busiest has 1 + 1/pieces times the mean; a plain Shard nearly twice
/// the mean. A plain Shard where the length does not divide by 2 * ranks.
Placement balanced_shard(int64_t dim, int64_t length, int64_t ranks);

/// `tensor` with dim `dim` cut by balanced_shard over `axis`: a DTensor on `axis` of a plain tensor that every rank
/// has; a DTensor whose mesh holds the axis keeps its other placements.
at::Tensor context_parallel_shard(const at::Tensor& tensor, const DeviceMesh& axis, int64_t dim);

}  // namespace sherd
