#pragma once
// ShardedTensors that change hands: one exchange of rectangles each, below autograd.

#include "sharded/layout.h"

namespace sherd::detail {

/// This rank's pieces as plain contiguous tensors on the layout's device; a piece that is a ShardedTensor itself is
/// gathered first.
std::vector<at::Tensor> plain_pieces(const at::Tensor& tensor);

/// The same values in the rectangles of another layout of the same holders.
at::Tensor exchanged(const at::Tensor& tensor, const ShardedLayoutPtr& to);

/// The whole tensor on every rank of the group; an empty one on ranks outside.
at::Tensor whole_everywhere(const at::Tensor& tensor);

/// A tensor of the layout whose values every rank has.
at::Tensor cut_out(const at::Tensor& whole, const ShardedLayoutPtr& layout);

/// A gradient or operand, whole or in other rectangles, in those of `layout`.
at::Tensor brought_to(const at::Tensor& tensor, const ShardedLayoutPtr& layout);

}  // namespace sherd::detail
