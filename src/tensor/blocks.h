#pragma once
// Blocks of tensors that change hands between the ranks of a group.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "plan/grid.h"
#include "sherd/group.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// A tensor that holds these rows of a global one.
struct HeldPart {
  at::Tensor tensor;  // contiguous
  plan::RunGrid rows;
};

/// Some rows of the part with this number.
struct Block {
  size_t part = 0;
  plan::RunGrid rows;
};

/// What one rank sends and receives in one exchange. The parts of `from` have one dtype, those of `to` one, and all one
/// device. Both sides of a message list its blocks in the same order and name the same rows.
struct BlockSwap {
  Group group;
  std::vector<HeldPart> from = {};
  std::vector<HeldPart> to = {};
  std::vector<std::vector<Block>> gives = {};  // per member; one list where all members get the same (`gather`)
  std::vector<std::vector<Block>> takes = {};  // per member; one list where they are reduced (`reduce`)
  bool gather = false;
  std::optional<ReduceOp> reduce = {};
  /// The type in which values travel; none: that of `from`, or of `to` where a rank gives nothing. They are converted
  /// as they are packed and unpacked.
  std::optional<c10::ScalarType> travels = {};
  /// In how many parts it is done, the same on every rank: more of them need less memory beside `from` and `to`.
  int64_t rounds = 1;
};

void run_swap(const BlockSwap& swap);

/// Bytes of an element on its way, where it is packed.
int64_t packed_size(const BlockSwap& swap);

/// The rounds that keep what is packed under `staging_bytes`, where no rank packs and unpacks more than `bytes`. Not
/// more than 65,536: each takes a call.
int64_t rounds_for(int64_t bytes, int64_t staging_bytes);

}  // namespace sherd::detail
