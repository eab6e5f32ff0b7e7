#pragma once
// A checkpoint that lies somewhere, whatever its format: what is in it, and where the elements of each chunk are.

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "format/dcp.h"
#include "format/manifest.h"
#include "sherd/storage.h"
#include "stored/open_options.h"
#include "stored/read_box.h"

namespace sherd::stored {

/// Of items shorter than it, several are in a block: they are read as they come, not when they are wanted.
inline constexpr int64_t kSmallItem = int64_t{64} << 10;

/// Elements that are there if the file has the bytes `head` from `head_offset` on; in front of the first element.
struct ExpectedElements {
  StoredElements elements;
  int64_t head_offset = 0;
  std::shared_ptr<const std::string> head;
};

class StoredCheckpoint {
 public:
  virtual ~StoredCheckpoint() = default;

  /// "dcp", "safetensors", "torch.save".
  virtual const char* format() const = 0;
  /// Formats other than PyTorch's distributed one are told in its words, too: entries, chunks, files, and where items
  /// lie.
  const format::Metadata& metadata() const { return metadata_; }
  /// Names under which ranks that did not talk while saving have something of their own each; the metadata have that of
  /// OpenOptions::rank, or of the first that has the name.
  const std::vector<std::string>& of_each_rank() const { return of_each_rank_; }
  /// Throws std::runtime_error where a file that this item needs is missing or too short. Reads no data.
  virtual void check_file(const format::Place& place, const std::string& reader) = 0;
  /// Where the elements of a chunk are; good as long as this. It may have to read for that.
  virtual StoredElements locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) = 0;
  /// The same without reading anything, as the metadata and the format let one expect it. Nothing where they do not, or
  /// where items are so small that reading them costs nothing.
  virtual std::optional<ExpectedElements> expected(const format::TensorEntry& /*entry*/, size_t /*chunk*/) {
    return std::nullopt;
  }
  /// An object that is no tensor: what torch.save writes of it.
  virtual std::string object(const format::Place& place, const std::string& reader) = 0;
  virtual int64_t bytes_read() const = 0;
  /// Calls `parse`, which makes something of an item's bytes. What it refuses (std::invalid_argument) is thrown with
  /// the file, the item's bytes and the reader.
  template <class Parse>
  decltype(auto) parse_item(const format::Place& place, const std::string& reader, Parse&& parse) const {
    try {
      return std::forward<Parse>(parse)();
    } catch (const std::invalid_argument& error) {
      throw_damaged_item(place, reader, error);
    }
  }
  /// Whether everything that is read is compared with digests.
  virtual bool has_digests() const { return false; }
  /// What the bytes of files are compared with; null where nothing is there for that.
  virtual const format::Manifest* digests() const { return nullptr; }
  /// What tells its contents from those of another save to the same path: a digest of names and bytes, which copies
  /// have in common, whatever their ids. Empty where nothing is there to be compared.
  std::string contents() const;
  /// The path of a manifest that was written with the checkpoint and is not there; empty where none is missed. Only
  /// where it is opened without comparing, or tolerantly: else it is an error.
  const std::string& missing_manifest() const { return missing_manifest_; }
  /// Bytes of file `number`, one of which check_file has seen an item, are going to be read soon (StoredFile::expect).
  virtual void expect(int32_t /*number*/, int64_t /*offset*/, int64_t /*size*/) {}
  /// File `number` of the metadata where its blocks have digests, else null.
  virtual BlockFile* blocks(int32_t /*number*/) { return nullptr; }

 protected:
  /// The path of a file of the metadata, and the words of errors.
  virtual std::string path_of_file(int32_t number) const = 0;
  virtual const OpenOptions& options() const = 0;

  format::Metadata metadata_;
  std::vector<std::string> of_each_rank_;
  std::string missing_manifest_;

 private:
  [[noreturn]] void throw_damaged_item(const format::Place& place, const std::string& reader,
                                       const std::invalid_argument& why) const;
};

/// What is at `path` (docs/format.md). Throws std::runtime_error where there is none that is read, naming what was
/// looked for, and std::invalid_argument where its metadata are damaged or refused.
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::shared_ptr<Storage>& storage, const std::string& path,
                                                  const OpenOptions& options = {});

}  // namespace sherd::stored
