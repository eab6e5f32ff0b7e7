#pragma once
#include <cstddef>
#include <cstdint>

namespace sherd::stored {

/// Blocks that are in memory already, or come there another way than by this process reading them from the file.
class BlocksAtHand {
 public:
  virtual ~BlocksAtHand() = default;

  /// Has blocks of the file brought, `block` among them where it is one of these; returns the first block after it for
  /// which this must be called again. Blocks are asked for in ascending order of file and block, by one thread. What
  /// find() gave before is no longer there.
  virtual int64_t bring(int32_t file, int64_t block) = 0;
  /// The bytes of the block, compared with its digest; null where it must be read. From several threads at once.
  virtual const std::byte* find(int32_t file, int64_t block) const = 0;
};

}  // namespace sherd::stored
