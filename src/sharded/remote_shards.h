#pragma once
#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// Shares this rank's shards with the other ranks of the group, over RPC, and keeps handles to theirs with the tensor.
/// Every rank of the group calls it. Throws where a rank has no RPC, alike on all.
void register_remote_shards(const at::Tensor& tensor);
bool has_remote_shards(const at::Tensor& tensor);

}  // namespace sherd::detail
