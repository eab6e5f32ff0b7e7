#pragma once
// Parts of tensors that change hands in one exchange among all ranks concerned.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/purpose.h"
#include "plan/transfer.h"
#include "sherd/layout.h"
#include "tensor/blocks.h"

namespace sherd::detail {

/// What an exchange is for, what it may lay down beside its parts, and in which type.
struct Staging {
  const PurposePtr& purpose;                    // for the ranks to compare: tensor, layout and target
  int64_t elements = 0;                         // the most that any rank packs and unpacks, for the rounds
  int64_t limit = int64_t{64} << 20;            // bytes that lie there at a time
  std::optional<c10::ScalarType> travels = {};  // as in BlockSwap
};

/// Gives and takes what `transfers` say, parts numbered as there, among the ranks of the group.
void swap_parts(const Group& group, std::vector<HeldPart> from, std::vector<HeldPart> to,
                const plan::Transfers& transfers, const Staging& staging);

/// The most elements that a rank holds, from what all ranks know.
int64_t largest_part(const Layout& layout);
/// The ranks that hold each element.
int64_t replicas(const Layout& layout);

/// What boxes are read or written for, where each rank names its own and knows those of all.
PurposePtr purpose_with_boxes(const std::string& what, const std::vector<plan::RankPart>& boxes);

}  // namespace sherd::detail
