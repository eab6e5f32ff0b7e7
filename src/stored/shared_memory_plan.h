#pragma once
// Which tensors lie in one storage of a file, and what of them fills it.

#include <cstdint>
#include <span>
#include <vector>

#include "stored/chosen.h"

namespace sherd::stored {

struct MemoryPlan {
  struct View {
    const ChosenTensor* tensor;
    int64_t offset;  // in elements
    Dims strides;
  };
  int64_t bytes = 0;
  std::vector<Elements> pieces;  // one behind the other they fill the storage
  std::vector<View> views;       // all that lie in it
};

/// Every tensor in one of the plans, in the order of the first of each. Tensors of one memory and dtype are in one
/// where those of them that lie in row-major order fill it without a gap; so are tensors that are the same view. What
/// else shares a memory (interleaved columns, with nothing that has them all) has a storage of its own: its elements
/// are right, and no others are written with them.
std::vector<MemoryPlan> plan_memories(std::span<const ChosenTensor> tensors);

}  // namespace sherd::stored
