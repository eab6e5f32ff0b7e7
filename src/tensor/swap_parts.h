#pragma once
// Parts of tensors that change hands in one exchange among all ranks concerned.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "plan/transfer.h"
#include "sherd/layout.h"
#include "tensor/blocks.h"

namespace sherd::detail {

/// What an exchange may lay down beside its parts, and in which type.
struct Staging {
  int64_t bytes = 0;                            // the most that any rank packs and unpacks, for the rounds
  int64_t limit = int64_t{64} << 20;            // of what lies there at a time
  std::optional<c10::ScalarType> travels = {};  // as in BlockSwap
};

/// Gives and takes what `transfers` say, parts numbered as there, among the ranks of the group.
void swap_parts(const Group& group, std::vector<HeldPart> from, std::vector<HeldPart> to,
                const plan::Transfers& transfers, const Staging& staging);

/// The most elements that a rank holds, from what all ranks know.
int64_t largest_part(const Layout& layout);
/// The ranks that hold each element.
int64_t replicas(const Layout& layout);
/// The most elements that a rank that has `from` gives where `to` is wanted: several ranks may want the same ones, and
/// those that hold them take turns.
int64_t most_given(const Layout& from, const Layout& to);

}  // namespace sherd::detail
