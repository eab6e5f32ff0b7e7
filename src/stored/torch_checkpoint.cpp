#include "stored/torch_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_map>

#include "format/flatten.h"
#include "format/own_digests.h"
#include "sherd/error.h"
#include "stored/copy_elements.h"

namespace sherd::stored {
namespace {

constexpr const char* kReader = "the pickle";

}  // namespace

TorchCheckpoint::TorchCheckpoint(const Storage& storage, const std::string& path, OpenOptions options)
    : options_(std::move(options)) {
  const std::shared_ptr<const StoredFile> stored = storage.open(path);
  file_ = std::make_unique<BlockFile>(path, stored, nullptr, options_);
  const std::string reader = kReader;
  format::Archive archive = format::read_archive(FileSource(*file_, 0, file_->size(), reader), path);
  metadata_.files = {path.substr(path.rfind('/') + 1)};  // npos + 1 is 0
  take_digests(stored, archive);
  saved_ = format::read_saved(FileSource(*file_, 0, file_->size(), reader), std::move(archive), path);
  by_offset_ = saved_.archive.records;
  std::ranges::sort(by_offset_, {}, &format::Record::offset);
  metadata_.paths.emplace();
  const bool script = saved_.archive.find("constants.pkl") != nullptr;
  std::unordered_map<std::string_view, const format::Record*> storages;
  for (const format::Record& record : saved_.archive.records) storages.emplace(record.name, &record);
  format::Flattened flat = format::flatten(saved_.value, {.source = path, .script = script});
  for (auto& dict : flat.dicts) {
    if (!dict.empty()) metadata_.dicts.push_back(std::move(dict));  // the state itself is a dict anyway
  }
  metadata_.ordered = std::move(flat.ordered);
  take_shared(flat.leaves);
  for (format::FlatValue& leaf : flat.leaves) {
    metadata_.paths->emplace_back(leaf.name, std::move(leaf.path));
    if (const auto* tensor = leaf.value.as<format::TensorRef>()) {
      const auto record = storages.find("data/" + tensor->storage);
      add_tensor(std::move(leaf.name), *tensor, record != storages.end() ? record->second : nullptr);
      continue;
    }
    const format::Place place{.file = 0, .offset = static_cast<int64_t>(objects_.size())};
    metadata_.entries.push_back({std::move(leaf.name), format::BytesEntry{place}});
    objects_.push_back(std::move(leaf.value));
  }
}

// From here on everything that is read is compared with them.
void TorchCheckpoint::take_digests(const std::shared_ptr<const StoredFile>& stored, const format::Archive& archive) {
  if (!options_.verify) return;
  const std::string reader = "the directory";
  std::optional<format::ManifestFile> digests;
  try {
    digests = format::digests_in(FileSource(*file_, 0, file_->size(), reader), archive, file_->path());
  } catch (const std::invalid_argument&) {
    // The last block has tensors, too: the CRC of each tells whether it is whole.
    if (!options_.tolerant) throw;
  }
  if (!digests) return;
  digests->name = metadata_.files.front();
  manifest_.emplace().files.push_back(std::move(*digests));
  directory_bytes_ = file_->bytes_read();
  const std::string path = file_->path();
  file_ = std::make_unique<BlockFile>(path, stored, &manifest_->files.front(), options_);
}

// Tensors of one storage.
void TorchCheckpoint::take_shared(const std::vector<format::FlatValue>& leaves) {
  std::map<std::string_view, std::vector<format::SharedView>> views;
  for (const format::FlatValue& leaf : leaves) {
    const auto* tensor = leaf.value.as<format::TensorRef>();
    if (tensor == nullptr || tensor->meta) continue;
    views[tensor->storage].push_back({leaf.name, tensor->offset, tensor->strides});
  }
  for (auto& [storage, group] : views) {
    if (group.size() > 1) metadata_.shared.push_back(std::move(group));
  }
}

// `record` is null for a tensor without data.
void TorchCheckpoint::add_tensor(std::string name, const format::TensorRef& tensor, const format::Record* record) {
  format::TensorEntry entry;
  entry.dtype = tensor.dtype;
  entry.requires_grad = tensor.requires_grad;
  entry.size = tensor.sizes;
  if (!is_row_major(tensor.sizes, tensor.strides)) entry.strides = tensor.strides;
  format::Place place;
  if (!tensor.meta && record != nullptr) {
    int64_t elements = numel(tensor.sizes) > 0 ? 1 : 0;  // from the first to the last in the file
    for (size_t d = 0; elements > 0 && d < tensor.sizes.size(); ++d) {
      elements += (tensor.sizes[d] - 1) * tensor.strides[d];
    }
    place = {.file = 0,
             // An empty one may have any offset.
             .offset = record->offset + (elements > 0 ? tensor.offset * size_of(tensor.dtype) : 0),
             .length = elements * size_of(tensor.dtype)};
  }
  entry.add(Dims(tensor.sizes.size(), 0), tensor.sizes, place);
  metadata_.entries.push_back({std::move(name), std::move(entry)});
}

void TorchCheckpoint::check_file(const format::Place& place, const std::string& reader) {
  if (place.file >= 0) return;  // the archive was checked when it was opened
  throw std::runtime_error(ErrorText(options_.operation, "a tensor was saved without its data (meta)")
                               .fact("file", file_->path())
                               .fact("reading", reader)
                               .help("another checkpoint, or a state without this key"));
}

// The one that these bytes are in.
const format::Record* TorchCheckpoint::record_at(int64_t offset) const {
  const auto after = std::ranges::upper_bound(by_offset_, offset, {}, &format::Record::offset);
  return after == by_offset_.begin() ? nullptr : &*std::prev(after);
}

StoredElements TorchCheckpoint::locate(const format::TensorEntry& entry, size_t chunk, const std::string&) {
  const format::Place& place = entry.places[chunk];
  StoredElements elements{file_.get(), place.offset, entry.dtype, entry.size, entry.strides, {}};
  if (elements.strides.empty()) elements.strides = row_major(entry.size);
  const format::Record* record = record_at(place.offset);
  if (record != nullptr && record->offset == place.offset && record->size == place.length) elements.crc = record->crc;
  return elements;
}

std::string TorchCheckpoint::object(const format::Place& place, const std::string& reader) {
  const format::Value& value = objects_.at(static_cast<size_t>(place.offset));
  const FileSource source(*file_, 0, file_->size(), reader);
  std::unordered_map<std::string, std::string> records;
  std::vector<format::StorageBytes> storages;
  format::for_each_storage(value, [&](const std::string& key, int64_t size) {
    std::string& bytes = records[key];
    bytes = parse_item(place, reader,
                       [&] { return format::read_storage(source, saved_.archive, key, size, file_->path()); });
    storages.push_back({key, std::as_bytes(std::span(bytes))});
  });
  std::string archive;
  format::write_archive(value, storages, [&](std::span<const std::byte> part) {
    archive.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return archive;
}

}  // namespace sherd::stored
