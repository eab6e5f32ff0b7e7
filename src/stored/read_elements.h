#pragma once
// Elements of a stored tensor, whatever chunks it lies in.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "stored/stored_checkpoint.h"

namespace sherd::stored {

/// The boxes that elements [first, end) of a box of these sizes make up, in row-major order: at most two for each dim
/// and one more. `at` counts from `first`.
void for_each_box(const Dims& sizes, int64_t first, int64_t end,
                  const std::function<void(const Box& box, int64_t at)>& use);

/// Reads tensors of one checkpoint; for one thread.
class ElementReader {
 public:
  explicit ElementReader(StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// Elements [first, end) of a box of the tensor, counted in row-major order, into memory. Throws DamagedCheckpoint
  /// where no chunk has one of them.
  void read(const format::MetadataEntry& entry, const Box& box, int64_t first, int64_t end, std::byte* into);
  /// A box of the tensor into memory with strides in elements.
  void read(const format::MetadataEntry& entry, const Box& box, std::byte* into, const Dims& strides);
  /// The CRC of a box's elements in row-major order, where the file says it and has no digests: where the box is the
  /// chunk that was read last.
  std::optional<uint32_t> crc_of(const format::MetadataEntry& entry, const Box& box) const;
  /// For a crc_of that is there and the CRC of what was read: throws DamagedCheckpoint where they differ, with the file
  /// and the bytes.
  void check_crc(uint32_t found) const;

 private:
  const StoredElements& locate(const format::MetadataEntry& entry, size_t chunk);

  StoredCheckpoint& checkpoint_;
  const format::MetadataEntry* entry_ = nullptr;  // the last one, and its chunk
  size_t chunk_ = 0;
  StoredElements elements_;
  std::string reader_;
};

}  // namespace sherd::stored
