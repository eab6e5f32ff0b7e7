#pragma once
// A file of a checkpoint, read by byte ranges, each block compared with its digest where there are digests.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/archive.h"
#include "format/manifest.h"
#include "sherd/storage.h"
#include "stored/blocks_at_hand.h"
#include "stored/open_options.h"

namespace sherd::stored {

/// Bytes [offset, offset + size) of a file, and where they go.
struct FileRun {
  int64_t offset = 0;
  int64_t size = 0;
  std::byte* into = nullptr;
};

class BlockFile {
 public:
  /// A file as it is; `digests` may be null. They and the options outlive this.
  BlockFile(std::string path, std::shared_ptr<const StoredFile> file, const format::ManifestFile* digests,
            const OpenOptions& options);
  /// One whose blocks lie in several files, which `open` finds, with their paths for errors.
  using OpenedFile = std::pair<std::string, std::shared_ptr<const StoredFile>>;
  using Open = std::function<OpenedFile(const format::BlockPlace&)>;
  BlockFile(std::string path, const format::ManifestFile& digests, Open open, const OpenOptions& options);

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  bool has_digests() const { return digests_ != nullptr; }
  const OpenOptions& options() const { return options_; }

  /// In ascending order; runs that are near each other are read together. `reader` is named in errors: "tensor w".
  /// Throws std::runtime_error naming the file, the bytes and the reader where the file ends too early or a digest
  /// differs.
  void read(std::span<const FileRun> runs, const std::string& reader);
  /// One run, of which more than it may be read: for small ones that follow each other.
  void read_ahead(const FileRun& run, const std::string& reader);
  /// One run as it is in the file, compared with nothing: to see whether it is what one expects.
  void peek(const FileRun& run, const std::string& reader);

  /// The same as read(), but at the latest in read_wanted(), where runs that share a block share its reading. Memory
  /// and reader stay until then, and so does `crc`, which is then that of the run's bytes; of files without digests
  /// alone.
  void want(const FileRun& run, const std::string& reader, uint32_t* crc = nullptr);
  int64_t bytes_wanted() const { return bytes_wanted_; }
  /// What is wanted and lies scattered is going to be read soon: the storage may bring all of it at once.
  void expect_wanted() noexcept;
  /// Reads what is wanted, in options().threads threads.
  void read_wanted();

  /// Takes blocks from there where they are there. `number` is that of this file.
  void take_from(BlocksAtHand& blocks, int32_t number);
  /// One block, whole, into the first bytes there. From several threads at once.
  void read_block(int64_t block, std::span<std::byte> into, const std::string& reader);

  /// What is there of bytes [offset, offset + size), or of a block, is going to be read soon. From several threads at
  /// once.
  void expect(int64_t offset, int64_t size) noexcept;
  void expect_block(int64_t block) noexcept { expect(block * format::kBlock, format::kBlock); }

  int64_t bytes_read() const { return bytes_read_; }

 private:
  // Bytes of the file. Their memory is not filled with zeros first, which would take as long as reading them.
  struct Window {
    int64_t start = 0;
    int64_t size = 0;
    int64_t room = 0;
    std::unique_ptr<std::byte[]> bytes = {};

    /// Room for bytes from there on; `size` says how many of them are there.
    std::span<std::byte> begin_at(int64_t offset, int64_t count);
    bool holds(const FileRun& run) const { return run.offset >= start && run.offset + run.size <= start + size; }
    const std::byte* at(int64_t offset) const { return bytes.get() + (offset - start); }
  };
  struct Wanted {
    FileRun run;
    const std::string* reader;
    uint32_t* crc;
  };
  void fetch(int64_t offset, std::span<std::byte> into, const std::string& reader);
  void fetch_block(size_t block, std::span<std::byte> into, const std::string& reader);
  void check_block(size_t block, const format::Digest& found, const std::string& reader);
  OpenedFile home_of(size_t block);
  const Window* find_window(int64_t start) const;
  const Window& block_window(size_t block, const std::string& reader);
  // `in_order`: among what is asked for in ascending order, as blocks at hand are.
  void read_by_blocks(const FileRun& run, const std::string& reader, bool in_order);
  const std::byte* bring(size_t block);
  int64_t block_size(size_t block) const;
  [[noreturn]] void throw_too_short(int64_t offset, int64_t size, const std::string& reader) const;

  // The part of a wanted run that is in one block.
  struct Piece {
    size_t block;
    int64_t begin;  // in the block
    int64_t size;
    std::byte* into;
    const std::string* reader;
  };
  void read_pieces(std::span<const Piece> pieces, std::vector<std::byte>& spare);
  bool read_scattered(std::span<const Piece> pieces, std::vector<std::byte>& spare);
  void read_compared(std::span<const Wanted> wanted);
  void read_as_they_are(std::vector<Wanted> wanted);
  // Runs that are read as one, ascending.
  using Together = std::span<const Wanted>;
  static void hand_out(Together runs, const std::byte* bytes);
  void read_small(std::span<const Together> all);

  std::string path_;
  std::shared_ptr<const StoredFile> file_;
  const format::ManifestFile* digests_;
  Open open_;
  const OpenOptions& options_;
  int64_t size_;
  std::atomic<int64_t> bytes_read_ = 0;
  int64_t bytes_wanted_ = 0;
  std::vector<Wanted> wanted_;
  std::mutex opening_;
  BlocksAtHand* at_hand_ = nullptr;
  int32_t number_ = -1;
  std::vector<Window> windows_;  // the last few; the newest at the end
};

/// A part of a file, for parsers.
class FileSource final : public format::ByteSource {
 public:
  FileSource(BlockFile& file, int64_t offset, int64_t size, const std::string& reader)
      : file_(file), offset_(offset), size_(size), reader_(reader) {}
  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<std::byte> into) const override;
  int64_t origin() const override { return offset_; }

 private:
  BlockFile& file_;
  int64_t offset_;
  int64_t size_;
  const std::string& reader_;
};

}  // namespace sherd::stored
