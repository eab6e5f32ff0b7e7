#pragma once
// PyTorch's distributed checkpoints, with sherd's manifest where there is one.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/manifest.h"
#include "stored/stored_checkpoint.h"

namespace sherd::stored {

class DcpCheckpoint final : public StoredCheckpoint {
 public:
  static constexpr const char* kMetadata = ".metadata";

  DcpCheckpoint(std::shared_ptr<Storage> storage, std::string path, OpenOptions options);
  /// Whether names of a folder are those of such a checkpoint.
  static bool is_in(const std::vector<std::string>& names);

  const char* format() const override { return "dcp"; }
  void check_file(const format::Place& place, const std::string& reader) override;
  StoredElements locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) override;
  std::optional<ExpectedElements> expected(const format::TensorEntry& entry, size_t chunk) override;
  std::string object(const format::Place& place, const std::string& reader) override;
  void expect(int32_t number, int64_t offset, int64_t size) override { file(number).expect(offset, size); }
  int64_t bytes_read() const override;

  bool has_digests() const override { return manifest_.has_value(); }
  const format::Manifest* digests() const override { return manifest_ ? &*manifest_ : nullptr; }
  BlockFile* blocks(int32_t number) override { return file(number).has_digests() ? &file(number) : nullptr; }

  const std::optional<format::Manifest>& manifest() const { return manifest_; }
  BlockFile& file(int32_t number);

 private:
  std::string path_of_file(int32_t number) const override;
  const OpenOptions& options() const override { return options_; }
  /// What a manifest says of the metadata beside it: the same bytes, others, or those of another save.
  enum class Told { same, damaged, of_another };
  Told compare(const std::string& bytes) const;
  void take_manifest(const std::string& name);
  void take_named_manifest(const format::Metadata& metadata);
  void miss_manifest();
  void read_metadata();
  void read_rank_metadata();
  std::string read_checked(const std::string& name);
  BlockFile::OpenedFile base_file(const format::BlockPlace& place);
  /// An item that was compressed, in memory: `most` bytes of it, or it is refused.
  BlockFile& decoded(const format::Place& place, int64_t most, const std::string& reader);
  /// Where the elements are in an item that torch.save writes of a tensor in row-major order, as most are; nothing
  /// where the item has another length.
  std::optional<ExpectedElements> usual(const format::TensorEntry& entry, size_t chunk);
  bool has_head(const ExpectedElements& expected, const format::Place& place, const std::string& reader);
  StoredElements locate_in_archive(BlockFile& file, int64_t offset, int64_t length, const std::string& reader);

  std::shared_ptr<Storage> storage_;
  std::string path_;
  OpenOptions options_;
  std::optional<format::Manifest> manifest_;
  std::string damaged_manifest_;                   // its path, where it is taken as if it were not there
  std::vector<std::unique_ptr<BlockFile>> files_;  // by number, opened when they are needed
  std::map<std::pair<int32_t, int32_t>, BlockFile::OpenedFile> base_files_;
  std::shared_ptr<BlockFile> decoded_;  // the last one that was asked for, and where it is
  std::pair<int32_t, int64_t> decoded_at_ = {-1, 0};
  struct Head {
    format::TensorItem item;
    std::shared_ptr<const std::string> bytes;
  };
  Head head_;  // the last that was made: tensors that follow each other are often alike
};

}  // namespace sherd::stored
