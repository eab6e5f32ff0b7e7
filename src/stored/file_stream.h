#pragma once
// A file of a checkpoint, written front to back, with a digest of every block made on the way. With a base, blocks that
// it has are not written.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "sherd/storage.h"
#include "stored/base_blocks.h"

namespace sherd::stored {

class FileStream {
 public:
  /// `base` may be null. `told` is called with the number of bytes that went by.
  FileStream(Draft& draft, std::string name, int64_t size, const BaseBlocks* base,
             std::function<void(int64_t)> told = {});

  int64_t position() const { return position_; }
  void append(std::span<const std::byte> bytes);
  void append(const std::string& bytes) { append(std::as_bytes(std::span(bytes))); }
  /// The same for the elements of a tensor; `crc` goes on counting. One pass while the bytes are in the cache.
  void append(std::span<const std::byte> bytes, uint32_t& crc);
  /// Zeros up to a multiple of `alignment`.
  void align(int64_t alignment);

  struct Written {
    format::ManifestFile
        file;           // places: `file` -1 is the file that was written here, others are places in `base`'s files
    int64_t bytes = 0;  // written, without what the base has
  };
  Written finish();
  /// The name of the file itself: another one where blocks are left out.
  static std::string stored_name(const std::string& name, bool has_base);

 private:
  void take(std::span<const std::byte> bytes);
  void flush();
  void close_block();

  std::unique_ptr<FileWriter> writer_;
  std::string name_;
  const BaseBlocks* base_;
  std::function<void(int64_t)> told_;
  int64_t position_ = 0;  // in the file as .metadata sees it
  int64_t stored_ = 0;    // in the file itself
  std::vector<std::byte> buffer_;
  format::BlockDigests digests_;
  format::ManifestFile file_;  // with a base
};

}  // namespace sherd::stored
