#include "stored/safetensors_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "format/object_json.h"
#include "format/own_digests.h"
#include "sherd/error.h"
#include "stored/copy_elements.h"
#include "stored/open_block_file.h"
#include "stored/read_file.h"
#include "stored/read_manifest.h"

namespace sherd::stored {
namespace {

constexpr std::string_view kFileEnd = ".safetensors";
constexpr std::string_view kRankFile = "shard-";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
constexpr int64_t kMostIndex = 100000000;

bool is_own_text(std::string_view key) {
  return key.starts_with("sherd.") || key == "DCP_SHARDING_INFO" || key == "DCP_VERSION" || key == "format";
}

// Whether two ids are one, but for a damaged character or two.
bool is_same_id(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i] ? 1 : 0;
  return different <= 4;
}

// The index says which tensors count; what it does not name is left out.
void keep_indexed(std::vector<format::NamedSafetensors>& files, const format::SafetensorsIndexFile& index,
                  const std::string& folder) {
  std::unordered_map<std::string_view, std::string_view> wanted(index.files.begin(), index.files.end());
  size_t found = 0;
  for (format::NamedSafetensors& file : files) {
    std::erase_if(file.file.tensors, [&](const format::SafeTensor& tensor) {
      const auto place = wanted.find(tensor.name);
      return place == wanted.end() || place->second != file.name;
    });
    found += file.file.tensors.size();
  }
  if (found == wanted.size()) return;
  std::unordered_set<std::string_view> there;
  for (const format::NamedSafetensors& file : files) {
    for (const format::SafeTensor& tensor : file.file.tensors) there.insert(tensor.name);
  }
  for (const auto& [tensor, file] : index.files) {
    if (there.contains(tensor)) continue;
    throw std::invalid_argument(ErrorText("read_safetensors", "a tensor of the index is not in its file")
                                    .fact("in", folder)
                                    .fact("tensor", tensor)
                                    .fact("file", file)
                                    .help("the files that belong to the index"));
  }
}

}  // namespace

bool SafetensorsCheckpoint::is_in(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(kFileEnd) || name.ends_with(kIndexEnd); });
}

bool SafetensorsCheckpoint::begins(std::string_view bytes, int64_t size) {
  if (bytes.size() < 9 || bytes[8] != '{') return false;
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header <= static_cast<uint64_t>(size);
}

SafetensorsCheckpoint::SafetensorsCheckpoint(std::shared_ptr<Storage> storage, const std::string& path,
                                             OpenOptions options)
    : storage_(std::move(storage)), options_(std::move(options)) {
  std::vector<std::string> names = storage_->list(path);
  if (names.empty()) {
    const size_t slash = path.rfind('/');
    folder_ = slash == std::string::npos ? "" : path.substr(0, std::max<size_t>(slash, 1));
    names = {path.substr(slash + 1)};  // npos + 1 is 0
  } else {
    folder_ = path;
    names = files_of_folder(names);
  }
  std::vector<format::NamedSafetensors> files;
  for (const std::string& name : names) files.push_back({name, read_header(name)});
  if (folder_ == path) check_manifest(files);
  std::ranges::sort(own_.files, {}, &format::ManifestFile::name);
  if (index_) keep_indexed(files, *index_, folder_);
  metadata_ = format::metadata_of(files, folder_.empty() ? "." : folder_);
  for (const format::MetadataEntry& entry : metadata_.entries) names_.insert(entry.name);
  for (size_t i = 0; i < files.size(); ++i) take_texts(files[i], static_cast<int32_t>(i));
  files_.resize(files.size());
  if (metadata_.paths) sort_entries();
}

// As they stood in the state; the files have them by dtype and name.
void SafetensorsCheckpoint::sort_entries() {
  std::unordered_map<std::string_view, size_t> order;
  for (const auto& [name, path] : *metadata_.paths) order.emplace(name, order.size());
  const auto place = [&](const format::MetadataEntry& entry) {
    const auto found = order.find(entry.name);
    return found != order.end() ? found->second : order.size();
  };
  std::ranges::stable_sort(metadata_.entries, {}, place);
}

std::vector<std::string> SafetensorsCheckpoint::files_of_folder(const std::vector<std::string>& names) {
  // An object store may still have one that is not listed, of a checkpoint that this one replaced.
  if (std::ranges::find(names, format::kManifestName) != names.end()) take_manifest();
  std::vector<std::string> files;
  if (manifest_) {
    // Files that came from elsewhere, or are left of a checkpoint that this one replaced, are none of it.
    for (const format::ManifestFile& file : manifest_->files) files.push_back(file.name);
    return files;
  }
  std::vector<std::string> indices;
  for (const std::string& name : names) {
    if (name.ends_with(kIndexEnd)) indices.push_back(name);
    if (name.ends_with(kFileEnd)) files.push_back(name);
  }
  if (indices.empty()) return files;
  const auto usual = std::find(indices.begin(), indices.end(), format::kSafetensorsIndex);
  if (usual == indices.end() && indices.size() > 1) {
    throw std::runtime_error(ErrorText(options_.operation, "the folder has several indices")
                                 .fact("folder", folder_)
                                 .fact("found", fmt::format("{}", fmt::join(indices, ", ")))
                                 .help("a folder of one model, or the path of one safetensors file"));
  }
  return files_of_index(usual != indices.end() ? *usual : indices.front());
}

// One that tells of these files: another program may have written others into the folder.
void SafetensorsCheckpoint::take_manifest() {
  // Where it is damaged, the names of the files are all there is to go by.
  manifest_ = open_manifest(*storage_, storage_->join(folder_, format::kManifestName), options_, damaged_manifest_);
  if (!manifest_) return;
  std::erase_if(manifest_->files, [](const auto& file) { return !std::string_view(file.name).ends_with(kFileEnd); });
  const auto& files = manifest_->files;
  if (std::none_of(files.begin(), files.end(), [&](const auto& file) { return is_of_manifest(file); })) {
    manifest_.reset();
  }
}

// Files of ranks are never without one. Their names tell: who writes a file anew may keep its texts.
void SafetensorsCheckpoint::check_manifest(const std::vector<format::NamedSafetensors>& files) {
  if (manifest_ || damaged_manifest_ || index_) return;
  const auto found = std::ranges::find_if(files, [](const format::NamedSafetensors& file) {
    return file.name.starts_with(kRankFile) && file.file.find_metadata(format::kSaveIdKey) != nullptr;
  });
  if (found == files.end()) return;
  missing_manifest_ = storage_->join(folder_, format::kManifestName);
  if (options_.verify && !options_.tolerant) {
    throw_missing_manifest(*storage_, missing_manifest_, found->name, options_);
  }
}

bool SafetensorsCheckpoint::is_of_manifest(const format::ManifestFile& file) const {
  const std::string path = path_of(file.name);
  if (!storage_->exists(path)) return false;
  std::shared_ptr<const StoredFile> stored = storage_->open(path);
  if (stored->size() == file.length) return true;
  BlockFile blocks(path, std::move(stored), nullptr, options_);
  try {
    const std::string reader = "the header";
    const auto header = format::read_safetensors(FileSource(blocks, 0, blocks.size(), reader), path);
    const std::string* id = header.find_metadata(format::kSaveIdKey);
    return id != nullptr && is_same_id(*id, manifest_->id);
  } catch (const std::invalid_argument&) {
    return false;
  }
}

std::vector<std::string> SafetensorsCheckpoint::files_of_index(const std::string& index) {
  const std::string path = storage_->join(folder_, index);
  if (storage_->open(path)->size() > kMostIndex) {
    throw std::invalid_argument(ErrorText(options_.operation, "the index is too large").fact("file", path));
  }
  const std::string bytes = read_file(*storage_, path);
  if (options_.verify && !options_.tolerant) format::check_safetensors_index(std::as_bytes(std::span(bytes)), path);
  index_ = format::decode_safetensors_index(std::as_bytes(std::span(bytes)), path);
  std::set<std::string> files;
  for (const auto& [tensor, file] : index_->files) files.insert(file);
  return {files.begin(), files.end()};
}

std::string SafetensorsCheckpoint::path_of(const std::string& name) const {
  return folder_.empty() ? name : storage_->join(folder_, name);
}

std::unique_ptr<BlockFile> SafetensorsCheckpoint::open_file(const std::string& name) const {
  const format::Manifest* known = digests();
  return open_block_file(storage_, path_of(name), known != nullptr ? known->find(name) : nullptr, options_);
}

format::SafetensorsFile SafetensorsCheckpoint::read_header(const std::string& name) {
  const std::unique_ptr<BlockFile> file = open_file(name);
  const std::string reader = "the header";
  format::SafetensorsFile header = format::read_safetensors(FileSource(*file, 0, file->size(), reader), file->path());
  if (!manifest_ && options_.verify) {
    if (auto digests = format::digests_in(FileSource(*file, 0, file->size(), reader), header, file->path())) {
      digests->name = name;
      own_.files.push_back(std::move(*digests));
    }
  }
  header_bytes_ += file->bytes_read();
  return header;
}

void SafetensorsCheckpoint::take_texts(const format::NamedSafetensors& file, int32_t number) {
  const std::string source = path_of(file.name);
  for (const auto& [key, text] : file.file.metadata) {
    if (key == format::kPathsKey) {
      if (!metadata_.paths) metadata_.paths.emplace();
      for (auto& path : format::decode_paths(text, source)) metadata_.paths->push_back(std::move(path));
    } else if (key == format::kDictsKey) {
      metadata_.dicts = format::decode_dicts(text, source);
    } else if (key == format::kOrderedKey) {
      metadata_.ordered = format::decode_ordered(text, source);
    } else if (key == format::kObjectsKey) {
      for (format::NamedObject& object : format::decode_objects(text, source)) add_object(std::move(object), number);
    } else if (!is_own_text(key)) {
      const auto same = [&key = key](const auto& other) { return other.first == key; };
      if (std::none_of(texts_.begin(), texts_.end(), same)) texts_.emplace_back(key, text);
    }
  }
}

void SafetensorsCheckpoint::add_object(format::NamedObject object, int32_t number) {
  if (!names_.insert(object.name).second) {
    throw std::invalid_argument(ErrorText(options_.operation, "two entries have one name")
                                    .fact("file", path_of(metadata_.files[static_cast<size_t>(number)]))
                                    .fact("name", object.name)
                                    .help("another checkpoint: this one is damaged"));
  }
  const format::Place place{.file = number, .offset = static_cast<int64_t>(objects_.size())};
  metadata_.entries.push_back({object.name, format::BytesEntry{place}});
  objects_.push_back(std::move(object));
}

BlockFile& SafetensorsCheckpoint::file(int32_t number) {
  auto& file = files_.at(static_cast<size_t>(number));
  if (!file) file = open_file(metadata_.files[static_cast<size_t>(number)]);
  return *file;
}

void SafetensorsCheckpoint::check_file(const format::Place& place, const std::string& reader) {
  const BlockFile& stored = file(place.file);
  if (place.offset <= stored.size() - place.length) return;
  throw std::runtime_error(ErrorText(options_.operation, "a file ends too early")
                               .fact("file", stored.path())
                               .fact("bytes wanted", fmt::format("{} to {}", place.offset, place.offset + place.length))
                               .fact("bytes there", fmt::to_string(stored.size()))
                               .fact("reading", reader)
                               .help("another checkpoint: this file has lost its end"));
}

StoredElements SafetensorsCheckpoint::locate(const format::TensorEntry& entry, size_t chunk, const std::string&) {
  const format::Place& place = entry.places[chunk];
  const auto sizes = entry.sizes(chunk);
  StoredElements elements{&file(place.file), place.offset, entry.dtype, {sizes.begin(), sizes.end()}, {}, {}};
  elements.strides = row_major(elements.sizes);
  return elements;
}

std::string SafetensorsCheckpoint::object(const format::Place& place, const std::string&) {
  return objects_.at(static_cast<size_t>(place.offset)).archive;
}

int64_t SafetensorsCheckpoint::bytes_read() const {
  int64_t bytes = header_bytes_;
  for (const auto& file : files_) bytes += file ? file->bytes_read() : 0;
  return bytes;
}

}  // namespace sherd::stored
