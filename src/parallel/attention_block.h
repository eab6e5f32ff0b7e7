#pragma once
// Attention over a part of the keys, on local tensors: what a rank computes for each block that comes by.

#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// How one block is attended to. `triangle`: query i sees keys 0 to i. `mask`: where defined, true where a query sees a
/// key or, of numbers, what is added to its score; of the scores' shape [batch, heads, queries, keys] or with ones in
/// it.
struct BlockForm {
  bool triangle = false;
  double scale = 1;
  at::Tensor mask = {};
};

struct AttentionBlock {
  at::Tensor output;     // [batch, heads, queries, width]: over these keys alone
  at::Tensor logsumexp;  // [batch, heads, queries] of the scores: what it takes to join blocks; -inf: no key is seen
};

/// Query [batch, heads, queries, width], key and value [batch, heads or a divisor of it, keys, width]; none is empty.
AttentionBlock attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const BlockForm& form);

struct AttentionGrads {
  at::Tensor query, key, value;
};

/// What a block contributes to the gradients. `output` and `logsumexp` are those over all keys.
AttentionGrads attend_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const AttentionBlock& whole, const BlockForm& form);

/// Joins a block into rows of what was found so far, in place.
void join_block(const AttentionBlock& so_far, const AttentionBlock& block);

/// The type that sums are kept in: float for halves.
c10::ScalarType sum_type(c10::ScalarType type);

}  // namespace sherd::detail
