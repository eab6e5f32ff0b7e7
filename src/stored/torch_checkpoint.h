#pragma once
// One file of torch.save, of torch::save, or of TorchScript: its tensors and other values by the names that a state
// dict has when it is flattened.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/flatten.h"
#include "format/saved.h"
#include "stored/stored_checkpoint.h"

namespace sherd::stored {

class TorchCheckpoint final : public StoredCheckpoint {
 public:
  TorchCheckpoint(const Storage& storage, const std::string& path, OpenOptions options);
  /// Whether a file that begins with these bytes can be one.
  static bool begins(std::string_view bytes) { return bytes.starts_with("PK\3\4"); }

  const char* format() const override { return "torch.save"; }
  void check_file(const format::Place& place, const std::string& reader) override;
  StoredElements locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) override;
  std::string object(const format::Place& place, const std::string& reader) override;
  int64_t bytes_read() const override { return directory_bytes_ + file_->bytes_read(); }
  bool has_digests() const override { return manifest_.has_value(); }
  const format::Manifest* digests() const override { return manifest_ ? &*manifest_ : nullptr; }

  /// The whole value: kinds of containers, and what lies beside a module's state dict.
  const format::Value& value() const { return saved_.value; }

 private:
  std::string path_of_file(int32_t /*number*/) const override { return file_->path(); }
  const OpenOptions& options() const override { return options_; }
  void take_digests(const std::shared_ptr<const StoredFile>& stored, const format::Archive& archive);
  void take_shared(const std::vector<format::FlatValue>& leaves);
  const format::Record* record_at(int64_t offset) const;
  void add_tensor(std::string name, const format::TensorRef& tensor, const format::Record* record);

  OpenOptions options_;
  std::optional<format::Manifest> manifest_;  // of the one file, where it carries digests
  std::unique_ptr<BlockFile> file_;
  int64_t directory_bytes_ = 0;
  format::Saved saved_;
  std::vector<format::Record> by_offset_;
  std::vector<format::Value> objects_;  // a Place's offset is a number among them
};

}  // namespace sherd::stored
