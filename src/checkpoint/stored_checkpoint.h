#pragma once
// A checkpoint that lies somewhere, whatever its format: what is in it, and where the elements of each chunk are.

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/read_box.h"
#include "format/dcp.h"
#include "sherd/state_dict.h"
#include "sherd/storage.h"

namespace sherd::detail {

class StoredCheckpoint {
 public:
  virtual ~StoredCheckpoint() = default;

  /// Formats other than PyTorch's distributed one are told in its words, too: entries, chunks, files, and where items
  /// lie.
  const format::Metadata& metadata() const { return metadata_; }
  /// Throws std::runtime_error where a file that this item needs is missing or too short. Reads no data.
  virtual void check_file(const format::Place& place, const std::string& reader) = 0;
  /// Where the elements of a chunk are.
  virtual StoredElements locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) = 0;
  virtual StateValue object(const format::Place& place, const std::string& reader) = 0;
  virtual int64_t bytes_read() const = 0;

 protected:
  format::Metadata metadata_;
};

/// What is at `path`: a folder of PyTorch's distributed checkpoints (docs/format.md). Throws std::runtime_error where
/// there is none, naming what was looked for, and std::invalid_argument where its metadata are damaged or refused.
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::shared_ptr<Storage>& storage, const std::string& path,
                                                  bool verify);

}  // namespace sherd::detail
