#pragma once
// safetensors: one file, a folder of them with an index, or a folder of them as PyTorch's and sherd's ranks write it.

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/manifest.h"
#include "format/safetensors.h"
#include "format/safetensors_texts.h"
#include "stored/stored_checkpoint.h"

namespace sherd::stored {

class SafetensorsCheckpoint final : public StoredCheckpoint {
 public:
  /// `path` is a file or a folder.
  SafetensorsCheckpoint(std::shared_ptr<Storage> storage, const std::string& path, OpenOptions options);
  /// Whether names of a folder are those of such a checkpoint.
  static bool is_in(const std::vector<std::string>& names);
  /// Whether a file that begins with these bytes (9 and more) and is this long can be one.
  static bool begins(std::string_view bytes, int64_t size);

  const char* format() const override { return "safetensors"; }
  void check_file(const format::Place& place, const std::string& reader) override;
  StoredElements locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) override;
  std::string object(const format::Place& place, const std::string& reader) override;
  void expect(int32_t number, int64_t offset, int64_t size) override { file(number).expect(offset, size); }
  int64_t bytes_read() const override;
  bool has_digests() const override { return manifest_ || own_.files.size() == metadata_.files.size(); }
  const format::Manifest* digests() const override {
    return manifest_ ? &*manifest_ : own_.files.empty() ? nullptr : &own_;
  }

  /// "__metadata__" of the files, what PyTorch and sherd keep there for themselves left out: texts for people.
  const std::vector<std::pair<std::string, std::string>>& texts() const { return texts_; }

 private:
  std::string path_of_file(int32_t number) const override {
    return path_of(metadata_.files.at(static_cast<size_t>(number)));
  }
  const OpenOptions& options() const override { return options_; }
  std::vector<std::string> files_of_folder(const std::vector<std::string>& names);
  std::vector<std::string> files_of_index(const std::string& index);
  void take_manifest();
  void check_manifest(const std::vector<format::NamedSafetensors>& files);
  bool is_of_manifest(const format::ManifestFile& file) const;
  format::SafetensorsFile read_header(const std::string& name);
  void take_texts(const format::NamedSafetensors& file, int32_t number);
  void add_object(format::NamedObject object, int32_t number);
  void sort_entries();
  std::string path_of(const std::string& name) const;
  std::unique_ptr<BlockFile> open_file(const std::string& name) const;
  BlockFile& file(int32_t number);

  std::shared_ptr<Storage> storage_;
  std::string folder_;  // empty where the file's own path has none
  OpenOptions options_;
  std::optional<format::Manifest> manifest_;
  format::Manifest own_;  // of files that carry digests themselves, where there is no manifest
  bool damaged_manifest_ = false;
  std::optional<format::SafetensorsIndexFile> index_;
  std::vector<std::unique_ptr<BlockFile>> files_;  // by number, opened when they are needed
  std::unordered_set<std::string> names_;          // of all entries
  std::vector<format::NamedObject> objects_;       // a Place's offset is a number among them
  std::vector<std::pair<std::string, std::string>> texts_;
  int64_t header_bytes_ = 0;
};

}  // namespace sherd::stored
