#pragma once
// Parts of Partials that come to the ranks that want the reduced values, and are reduced there.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "comm/purpose.h"
#include "plan/transfer.h"
#include "sherd/layout.h"
#include "tensor/blocks.h"

namespace sherd::detail {

/// Rows that a rank reduces, which lie at one place of the layout, and the tensor that they go to, which has them.
struct PieceToReduce {
  plan::RunGrid rows;
  HeldPart into;
};

/// One tensor: what this rank has of it, and what it reduces.
struct PartsToReduce {
  Layout layout;  // with Partials
  HeldPart held;
  std::vector<PieceToReduce> pieces = {};
  size_t parts = 1;                    // that every element has
  plan::Transfers contributions = {};  // all of a piece, to part `c` of piece `p`, which has the number p * parts + c
  int64_t most_taken = 0;              // elements of pieces, and
  int64_t most_given = 0;              // elements that are sent: by any rank, from what all know
};

struct ReducePartsOptions {
  const PurposePtr& purpose;  // as in Staging
  int64_t staging_bytes = int64_t{64} << 20;
  std::optional<c10::ScalarType> reduce_dtype = {};
};

/// Throws c10::ValueError for a dtype that cannot be reduced so: alike on every rank.
void check_can_reduce(const char* operation, const Layout& layout, const at::TensorOptions& like,
                      std::optional<c10::ScalarType> reduce_dtype);

/// Fills the pieces of all tensors, which have one dtype; every rank of the group has them in the same order. Rounds
/// keep what lies beside held parts and pieces within the staging buffer.
void reduce_parts(const Group& group, const std::vector<const PartsToReduce*>& tensors,
                  const ReducePartsOptions& options);

}  // namespace sherd::detail
