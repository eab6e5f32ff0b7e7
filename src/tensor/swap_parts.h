#pragma once
// Parts of tensors that change hands in one exchange among all ranks concerned.

#include <ATen/core/Tensor.h>

#include <vector>

#include "plan/transfer.h"
#include "sherd/layout.h"
#include "tensor/blocks.h"

namespace sherd::detail {

/// Gives and takes what `transfers` say, parts numbered as there, among the ranks of the group.
/// `bytes`: the most that any of them packs and unpacks, for the rounds.
void swap_parts(const Group& group, std::vector<HeldPart> from, std::vector<HeldPart> to,
                const plan::Transfers& transfers, int64_t bytes, int64_t staging_bytes);

/// The most elements that a rank holds, from what all ranks know.
int64_t largest_part(const Layout& layout);

}  // namespace sherd::detail
