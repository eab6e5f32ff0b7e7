#pragma once
// PyTorch's distributed checkpoints, with sherd's manifest where there is one.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/stored_checkpoint.h"
#include "format/manifest.h"

namespace sherd::detail {

class DcpCheckpoint final : public StoredCheckpoint {
 public:
  DcpCheckpoint(std::shared_ptr<Storage> storage, std::string path, bool verify);
  /// Whether there is one at the path.
  static bool is_at(const Storage& storage, const std::string& path);

  void check_file(const format::Place& place, const std::string& reader) override;
  StoredElements locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) override;
  StateValue object(const format::Place& place, const std::string& reader) override;
  int64_t bytes_read() const override;

  const std::optional<format::Manifest>& manifest() const { return manifest_; }
  BlockFile& file(int32_t number);

 private:
  void read_manifest(const std::string& name);
  void read_metadata();
  std::string read_checked(const std::string& name);
  std::shared_ptr<const StoredFile> base_file(const format::BlockPlace& place);
  /// An item that was compressed, in memory.
  BlockFile& decoded(const format::Place& place, const std::string& reader);
  StoredElements locate_in_archive(BlockFile& file, int64_t offset, int64_t length, const std::string& reader);

  std::shared_ptr<Storage> storage_;
  std::string path_;
  bool verify_;
  std::optional<format::Manifest> manifest_;
  std::vector<std::unique_ptr<BlockFile>> files_;  // by number, opened when they are needed
  std::map<std::pair<int32_t, int32_t>, std::shared_ptr<const StoredFile>> base_files_;
  std::map<std::pair<int32_t, int64_t>, std::unique_ptr<BlockFile>> decoded_;  // by file and offset
};

}  // namespace sherd::detail
