#pragma once
// Writing past the page cache, in whole blocks.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "storage/io_error.h"
#include "storage/posix.h"

namespace sherd {

/// A second way into a file that is being written. What it does not write, for whatever reason, the first way does, and
/// says why that fails.
class DirectWriter {
 public:
  DirectWriter(Posix& posix, const std::string& path);

  /// Writes whole blocks from inside the range; returns what it wrote. From several threads at once.
  ByteRange write(int64_t offset, std::span<const std::byte> bytes);

 private:
  Posix& posix_;
  OpenFile file_;
  std::atomic<bool> works_;
};

}  // namespace sherd
