#pragma once
// A stored tensor read by boxes of its own, whatever chunks it was cut into.

#include <functional>
#include <string>

#include "stored/read_elements.h"

namespace sherd::stored {

class TensorParts {
 public:
  /// Both outlive this. `operation` begins errors.
  TensorParts(StoredCheckpoint& checkpoint, const format::MetadataEntry& entry, std::string operation);

  const format::TensorEntry& tensor() const { return tensor_; }

  /// Throws DamagedCheckpoint where an element of the box is stored nowhere, or twice. Reads nothing.
  void check_covered(const Box& box) const;
  /// Fills memory with the box, in row-major order. Throws DamagedCheckpoint.
  void read(const Box& box, std::byte* into);

 private:
  const format::MetadataEntry& entry_;
  const format::TensorEntry& tensor_;
  std::string operation_;
  ElementReader reader_;
};

/// Cuts a box into boxes of at most `most` elements (of one at least) that follow each other in row-major order, and
/// calls `visit` with each.
void for_each_tile(const Box& box, int64_t most, const std::function<void(const Box& tile)>& visit);

}  // namespace sherd::stored
