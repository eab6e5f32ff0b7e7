#pragma once
// What is known of a LocalShardsWrapper but its data.

#include <vector>

#include "sherd/local_shards.h"
#include "tensor/boxes_meta.h"
#include "tensor/chunk_table.h"

namespace sherd::detail {

/// The boxes are those of the closed-up tensor; the chunks say where the shards stand in the whole one, as `outer`
/// does.
struct LocalShardsLayout final : BoxLayout {
  std::vector<ChunkMetadata> chunks;
  ChunkTable table;

  /// The chunks do not overlap.
  LocalShardsLayout(std::vector<ChunkMetadata> where, std::optional<Dims> global_size, size_t ndim);
};

/// The layout of a LocalShardsWrapper; null for every other tensor.
inline const LocalShardsLayout* local_shards_layout(const at::Tensor& tensor) {
  const BoxesMeta* meta = boxes_of(tensor);
  return meta != nullptr ? dynamic_cast<const LocalShardsLayout*>(meta->layout.get()) : nullptr;
}

}  // namespace sherd::detail
