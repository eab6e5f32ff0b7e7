#pragma once
// Checkpoints whose ranks did not talk while saving: each has metadata of its own.

#include <cstdint>
#include <string>
#include <vector>

#include "format/dcp.h"

namespace sherd::stored {

struct RankMetadata {
  int64_t rank = 0;
  format::Metadata metadata;
};

/// An entry that another rank wrote for itself under a name that is taken.
struct OtherEntry {
  int64_t rank = 0;
  format::MetadataEntry entry;
};

struct MergedMetadata {
  format::Metadata metadata;
  std::vector<OtherEntry> others;
};

/// What `rank` sees of the metadata of all ranks, in ascending order: of objects and of tensors that a rank has whole
/// its own, where it has none those of the first rank that has; tensors in parts together, chunks that several ranks
/// wrote once. Files have the same numbers for every rank. Throws std::invalid_argument where two ranks tell different
/// things of one tensor in parts.
MergedMetadata merge_metadata(std::vector<RankMetadata> ranks, int64_t rank, const std::string& operation);

}  // namespace sherd::stored
