#pragma once
// Chunks found by where they begin.

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sherd/checkpointable.h"

namespace sherd::detail {

class ChunkTable {
 public:
  ChunkTable() = default;
  explicit ChunkTable(const std::vector<ChunkMetadata>& chunks);

  /// The place of a chunk in the list that the table was made of, as Checkpointable::shard finds it.
  size_t find(const ShardIndex& index, const std::vector<ChunkMetadata>& chunks, const std::optional<Dims>& size) const;

  /// The place of the chunk at these offsets.
  std::optional<size_t> find(const Dims& offsets) const;

 private:
  struct Hash {
    size_t operator()(const Dims& dims) const;
  };
  std::unordered_map<Dims, size_t, Hash> places_;
};

/// "[0:4, 0:2], [0:4, 4:5]", "none"; the first few of many.
std::string text_of(const std::vector<ChunkMetadata>& chunks);

}  // namespace sherd::detail
