#pragma once
// A file of a checkpoint, read by byte ranges, each block compared with its digest where there are digests.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/archive.h"
#include "format/manifest.h"
#include "sherd/storage.h"

namespace sherd::detail {

/// Bytes [offset, offset + size) of a file, and where they go.
struct FileRun {
  int64_t offset = 0;
  int64_t size = 0;
  std::byte* into = nullptr;
};

class BlockFile {
 public:
  /// A file as it is; `digests` may be null, and outlives this.
  BlockFile(std::string path, std::shared_ptr<const StoredFile> file, const format::ManifestFile* digests);
  /// One whose blocks lie in several files, which `open` finds.
  using Open = std::function<std::shared_ptr<const StoredFile>(const format::BlockPlace&)>;
  BlockFile(std::string path, const format::ManifestFile& digests, Open open);

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  bool has_digests() const { return digests_ != nullptr; }

  /// In ascending order; runs that are near each other are read together. `reader` is named in errors: "tensor w".
  /// Throws std::runtime_error naming the file, the bytes and the reader where the file ends too early or a digest
  /// differs.
  void read(std::span<const FileRun> runs, const std::string& reader);
  /// One run, of which more than it may be read: for small ones that follow each other.
  void read_ahead(const FileRun& run, const std::string& reader);

  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Window {
    int64_t start = 0;
    int64_t size = 0;
    std::vector<std::byte> bytes;
  };
  void fetch(int64_t offset, std::span<std::byte> into, const std::string& reader);
  void fetch_block(size_t block, std::span<std::byte> into, const std::string& reader);
  const Window& block_window(size_t block, const std::string& reader);
  void read_by_blocks(const FileRun& run, const std::string& reader);
  int64_t block_size(size_t block) const;

  std::string path_;
  std::shared_ptr<const StoredFile> file_;
  const format::ManifestFile* digests_;
  Open open_;
  int64_t size_;
  int64_t bytes_read_ = 0;
  std::vector<Window> windows_;  // the last few; the newest at the end
};

/// A part of a file, for parsers.
class FileSource final : public format::ByteSource {
 public:
  FileSource(BlockFile& file, int64_t offset, int64_t size, const std::string& reader)
      : file_(file), offset_(offset), size_(size), reader_(reader) {}
  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<std::byte> into) const override;

 private:
  BlockFile& file_;
  int64_t offset_;
  int64_t size_;
  const std::string& reader_;
};

}  // namespace sherd::detail
