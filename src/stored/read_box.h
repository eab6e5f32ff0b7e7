#pragma once
// A part of a chunk of a file, brought into memory.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "format/dtype.h"
#include "sherd/box.h"
#include "stored/block_file.h"

namespace sherd::stored {

/// The elements of a chunk in a file.
struct StoredElements {
  BlockFile* file = nullptr;
  int64_t offset = 0;  // in bytes, of the first element
  format::DType dtype = format::DType::f32;
  Dims sizes;
  Dims strides;                             // in elements
  std::optional<uint32_t> crc = {};         // of all of them as they lie in the file, where that is known
  bool crc_behind = false;                  // or it stands behind them, where the archive has one there
  std::shared_ptr<BlockFile> decoded = {};  // the file, where it is an item that was decompressed into memory
};

/// Fills memory with these elements of the chunk, in the chunk's dtype; `strides` are those of the memory, in elements.
/// Straight into it where runs of elements lie together on both sides, else through at most 16 MiB beside it. Where the
/// file has no digests and all of the chunk is read, its CRC is compared.
void read_box(const StoredElements& chunk, const Box& part, std::byte* into, const Dims& strides,
              const std::string& reader);

/// What stands behind the elements of a tensor that are alone in their archive.
struct BehindElements {
  std::array<char, 4> signature = {};
  uint32_t crc = 0;
  std::optional<uint32_t> found() const;
};
/// The CRC of elements that are read later, and what it is compared with.
struct LaterCrc {
  bool counted = false;
  uint32_t sum = 0;
  BehindElements behind = {};
  /// Throws std::runtime_error where they differ, once everything was read.
  void check(const StoredElements& chunk, const std::string& reader) const;
};
/// The same, done at the latest in chunk.file->read_wanted(). The memory, the reader and `crc` stay until then; what
/// was read then has its CRC compared by crc.check().
void want_box(const StoredElements& chunk, const Box& part, std::byte* into, const Dims& strides,
              const std::string& reader, LaterCrc& crc);
/// Throws std::runtime_error with the file and bytes of all of the chunk where its CRC is not the one that was saved.
void compare_crc(const StoredElements& chunk, uint32_t saved, uint32_t found, const std::string& reader);
/// The CRC behind the elements, where there is one; it is read at once.
std::optional<uint32_t> crc_behind(const StoredElements& chunk, const std::string& reader);

/// Elements as they were read: `sizes` of them, from `at` on in the part that was asked for.
struct ReadPart {
  const std::byte* elements;
  Dims at;
  Dims sizes;
  Dims strides;  // in elements
};
/// The same, handed out in parts of at most 16 MiB (of one element's stretch, where that is more).
void read_box(const StoredElements& chunk, const Box& part, const std::function<void(const ReadPart&)>& take,
              const std::string& reader);

}  // namespace sherd::stored
