#pragma once
#include "sherd/sharded_tensor.h"

namespace sherd::detail {

/// What must be right about a rank's own shard, compared with what all shards have in common and with its metadata:
/// layout, contiguity, size, pinning, device, dtype, requires_grad. Throws c10::ValueError that names the shard.
void check_shard(const char* operation, size_t index, const sharded::Shard& shard,
                 const sharded::TensorProperties& properties, const sharded::ShardMetadata& metadata);

}  // namespace sherd::detail
