#pragma once
// The blocks of an earlier checkpoint, found by their digest.

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/manifest.h"
#include "sherd/storage.h"

namespace sherd::stored {

class BaseBlocks {
 public:
  /// Reads the base's manifest. `path` is that of the checkpoint to be written. Throws std::runtime_error where the
  /// base is none that sherd wrote. Blocks of checkpoints that it refers to and that are gone, or saved again since,
  /// are not found.
  BaseBlocks(const Storage& storage, const std::string& base, const std::string& path);

  /// Where a block of this length lies; null where the base has none such. `file` is a place in files().
  const format::BlockPlace* find(const format::Digest& digest, int64_t length) const;

  /// The base, then the checkpoints that it refers to itself: BlockPlace::base counts these from 1. The same on every
  /// rank.
  const std::vector<std::string>& bases() const { return bases_; }
  const std::vector<std::string>& ids() const { return ids_; }
  const std::vector<std::string>& files() const { return files_; }

 private:
  struct Block {
    format::BlockPlace place;
    int64_t length;
  };
  struct Hash {
    size_t operator()(const format::Digest& digest) const { return digest.low; }
  };
  std::vector<std::string> bases_;
  std::vector<std::string> ids_;
  std::vector<std::string> files_;
  std::unordered_map<format::Digest, Block, Hash> blocks_;
};

/// The name of a checkpoint's manifest, whether it is there or not.
std::string manifest_of(const Storage& storage, const std::string& path);
/// It, read; nothing where it is not there or is damaged.
std::optional<format::Manifest> find_manifest(const Storage& storage, const std::string& path);

/// Bases and stored files that no block of the manifest refers to are left out of it, and the others counted anew; of
/// stored files with one name one stays.
void drop_unused(format::Manifest& manifest);

/// `to` as a checkpoint at `from` names it: by its last part alone where both lie in one folder.
std::string base_name(const Storage& storage, const std::string& from, const std::string& to);
/// The path that base_name stands for.
std::string base_path(const std::string& from, const std::string& name);

}  // namespace sherd::stored
