#pragma once
// Tensors that go from one mesh to another, or between a layout and boxes, in one exchange among all ranks concerned.

#include <ATen/core/Tensor.h>

#include <vector>

#include "plan/transfer.h"
#include "sherd/layout.h"
#include "sherd/world.h"
#include "tensor/blocks.h"

namespace sherd::detail {

/// Gives and takes what `transfers` say, parts numbered as there; `ranks` are the world's that take part, ascending.
/// `bytes`: the most that any of them packs and unpacks, for the rounds.
void swap_parts(const Group& group, std::vector<HeldPart> from, std::vector<HeldPart> to,
                const plan::Transfers& transfers, int64_t bytes, int64_t staging_bytes);

/// This rank's part under `after` of a tensor of which it has `local` under `before`; an empty tensor where it is in
/// neither mesh or not in the second.
at::Tensor swap_layouts(const World& world, const Layout& before, const Layout& after, const at::Tensor& local,
                        int64_t staging_bytes);

/// The most elements that a rank holds, from what all ranks know.
int64_t largest_part(const Layout& layout);

}  // namespace sherd::detail
