#include "checkpoint/dcp_checkpoint.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "checkpoint/base_blocks.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/memory_file.h"
#include "checkpoint/objects.h"
#include "checkpoint/read_file.h"
#include "format/archive.h"
#include "format/pickle.h"
#include "format/transforms.h"
#include "sherd/error.h"
#include "tensor/spec.h"

namespace sherd::detail {
namespace {

constexpr const char* kOperation = "load";
constexpr const char* kMetadata = ".metadata";
// What a compressed item may grow to.
constexpr int64_t kMostDecoded = int64_t{64} << 30;

// "__3.metadata": what each rank writes where ranks do not talk while saving.
bool is_rank_metadata(const std::string& name) {
  constexpr std::string_view kEnd = ".metadata";
  if (name.size() <= 2 + kEnd.size() || !name.starts_with("__") || !name.ends_with(kEnd)) return false;
  const auto middle = std::string_view(name).substr(2, name.size() - 2 - kEnd.size());
  return middle.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::string> rank_metadata(const Storage& storage, const std::string& path) {
  std::vector<std::string> names;
  for (const std::string& name : storage.list(path)) {
    if (is_rank_metadata(name)) names.push_back(name);
  }
  return names;
}

// Whether an id is that of another save, not this one with a damaged character or two.
bool is_another_id(const std::string& id, const std::string& own) {
  size_t different = id.size() > own.size() ? id.size() - own.size() : own.size() - id.size();
  for (size_t i = 0; i < std::min(id.size(), own.size()); ++i) different += id[i] != own[i] ? 1 : 0;
  return different > 4;
}

// What several ranks wrote, each for itself: chunks that are there already were written twice.
void merge(format::Metadata& into, const format::Metadata& other) {
  std::vector<int32_t> files;
  for (const std::string& file : other.files) files.push_back(into.file_number(file));
  const auto transforms = static_cast<int32_t>(into.transforms.size());
  into.transforms.insert(into.transforms.end(), other.transforms.begin(), other.transforms.end());
  const auto moved = [&](format::Place place) {
    if (place.file >= 0) place.file = files[static_cast<size_t>(place.file)];
    if (place.transforms >= 0) place.transforms += transforms;
    return place;
  };
  std::map<std::string_view, size_t> known;
  for (size_t i = 0; i < into.entries.size(); ++i) known[into.entries[i].name] = i;
  for (const format::MetadataEntry& entry : other.entries) {
    const auto found = known.find(entry.name);
    if (found == known.end()) {
      into.entries.push_back(entry);
      std::visit(
          [&](auto& content) {
            if constexpr (requires { content.places; }) {
              for (format::Place& place : content.places) place = moved(place);
            } else {
              content.place = moved(content.place);
            }
          },
          into.entries.back().content);
      continue;
    }
    auto* target = std::get_if<format::TensorEntry>(&into.entries[found->second].content);
    const auto* source = std::get_if<format::TensorEntry>(&entry.content);
    if (target == nullptr || source == nullptr) continue;
    if (target->size != source->size || target->dtype != source->dtype) {
      throw std::invalid_argument(ErrorText(kOperation, "the ranks' metadata tell different things of one tensor")
                                      .fact("tensor", entry.name)
                                      .fact("sizes", to_string(target->size) + " and " + to_string(source->size))
                                      .help("files of one save alone in the folder"));
    }
    for (size_t i = 0; i < source->chunk_count(); ++i) {
      const Box box = source->box(i);
      bool there = false;
      for (size_t j = 0; j < target->chunk_count() && !there; ++j) there = target->box(j) == box;
      if (!there) target->add(box.offset, box.size, moved(source->places[i]));
    }
  }
  if (into.paths && other.paths) {
    for (const auto& path : *other.paths) {
      if (!known.contains(path.first)) into.paths->push_back(path);
    }
  }
}

// The CRC of a tensor's elements that are alone in their archive stands behind them.
std::optional<uint32_t> crc_behind(BlockFile& file, int64_t offset, const std::string& reader) {
  struct {
    char signature[4];
    uint32_t crc;
  } descriptor;
  file.read_ahead({offset, sizeof(descriptor), reinterpret_cast<std::byte*>(&descriptor)}, reader);
  if (std::memcmp(descriptor.signature, "PK\7\10", 4) != 0) return std::nullopt;
  return descriptor.crc;
}

}  // namespace

bool DcpCheckpoint::is_at(const Storage& storage, const std::string& path) {
  return storage.exists(storage.join(path, kMetadata)) || !rank_metadata(storage, path).empty();
}

DcpCheckpoint::DcpCheckpoint(std::shared_ptr<Storage> storage, std::string path, bool verify)
    : storage_(std::move(storage)), path_(std::move(path)), verify_(verify) {
  read_manifest(format::kManifestName);
  read_metadata();
  files_.resize(metadata_.files.size());
}

void DcpCheckpoint::read_manifest(const std::string& name) {
  const std::string file = storage_->join(path_, name);
  if (!storage_->exists(file)) return;
  const std::string bytes = read_file(*storage_, file);
  manifest_ = format::decode_manifest(std::as_bytes(std::span(bytes)), file);
}

// A small file, whole, compared with its digest.
std::string DcpCheckpoint::read_checked(const std::string& name) {
  const std::string file = storage_->join(path_, name);
  std::shared_ptr<const StoredFile> stored = storage_->open(file);
  std::string bytes(static_cast<size_t>(stored->size()), '\0');
  BlockFile blocks(file, stored, nullptr);
  const FileRun run{0, blocks.size(), reinterpret_cast<std::byte*>(bytes.data())};
  if (run.size > 0) blocks.read({&run, 1}, "the metadata");
  return bytes;
}

void DcpCheckpoint::read_metadata() {
  const std::string file = storage_->join(path_, kMetadata);
  if (!storage_->exists(file)) {
    for (const std::string& name : rank_metadata(*storage_, path_)) {
      const std::string bytes = read_checked(name);
      auto metadata = format::decode_metadata(std::as_bytes(std::span(bytes)), storage_->join(path_, name));
      if (metadata_.entries.empty()) {
        metadata_ = std::move(metadata);
      } else {
        merge(metadata_, metadata);
      }
    }
    manifest_.reset();
    return;
  }
  const std::string bytes = read_checked(kMetadata);
  if (!manifest_ && !storage_->replaces_whole_folders()) {
    const std::string id = format::decode_metadata(std::as_bytes(std::span(bytes)), file).save_id;
    if (!id.empty()) read_manifest(format::manifest_name(id));
  }
  const format::ManifestFile* digests = manifest_ ? manifest_->find(kMetadata) : nullptr;
  bool intact = digests != nullptr && digests->length == static_cast<int64_t>(bytes.size());
  for (size_t i = 0; intact && i < digests->blocks.size(); ++i) {
    const auto block = std::as_bytes(std::span(bytes)).subspan(i * format::kBlock);
    intact = format::digest_of(block.first(std::min<size_t>(block.size(), format::kBlock))) == digests->blocks[i];
  }
  if (manifest_ && !intact) {
    // Another program may have written a checkpoint over the one that the manifest tells of. Then it says so itself.
    std::string other;
    try {
      other = format::decode_metadata(std::as_bytes(std::span(bytes)), file).save_id;
    } catch (const std::invalid_argument&) {
    }
    if (verify_ && (other.empty() || !is_another_id(other, manifest_->id))) {
      throw std::runtime_error(
          ErrorText(kOperation, "a file is damaged: its bytes are not those that were saved")
              .fact("file", file)
              .fact("bytes", fmt::format("0 to {}", bytes.size()))
              .help("another checkpoint, or LoadOptions{.verify = false} to take the bytes as they are"));
    }
    manifest_.reset();
  }
  metadata_ = format::decode_metadata(std::as_bytes(std::span(bytes)), file);
}

std::shared_ptr<const StoredFile> DcpCheckpoint::base_file(const format::BlockPlace& place) {
  auto& file = base_files_[{place.base, place.file}];
  if (file) return file;
  const std::string folder =
      place.base == 0 ? path_ : base_path(path_, manifest_->bases.at(static_cast<size_t>(place.base) - 1));
  const std::string name = storage_->join(folder, manifest_->stored_files.at(static_cast<size_t>(place.file)));
  if (!storage_->exists(name)) {
    throw std::runtime_error(ErrorText(kOperation, "a file of the checkpoint that this one builds on is missing")
                                 .fact("checkpoint", path_)
                                 .fact("base", folder)
                                 .fact("file", name)
                                 .help("bring the base back; checkpoints saved without a base need no other"));
  }
  return file = storage_->open(name);
}

BlockFile& DcpCheckpoint::file(int32_t number) {
  auto& file = files_.at(static_cast<size_t>(number));
  if (file) return *file;
  const std::string& name = metadata_.files[static_cast<size_t>(number)];
  const std::string path = storage_->join(path_, name);
  const format::ManifestFile* digests = manifest_ ? manifest_->find(name) : nullptr;
  if (digests != nullptr && !digests->places.empty()) {
    file = std::make_unique<BlockFile>(path, *digests,
                                       [this](const format::BlockPlace& place) { return base_file(place); });
    return *file;
  }
  if (!storage_->exists(path)) {
    throw std::runtime_error(ErrorText(kOperation, "a file of the checkpoint is missing")
                                 .fact("file", path)
                                 .help("another checkpoint, or bring the file back"));
  }
  std::shared_ptr<const StoredFile> stored = storage_->open(path);
  if (digests != nullptr && digests->length != stored->size()) {
    throw std::runtime_error(ErrorText(kOperation, "a file of the checkpoint has another length than was saved")
                                 .fact("file", path)
                                 .fact("bytes saved", fmt::to_string(digests->length))
                                 .fact("bytes there", fmt::to_string(stored->size()))
                                 .help("another checkpoint: this one is damaged"));
  }
  file = std::make_unique<BlockFile>(path, std::move(stored), verify_ ? digests : nullptr);
  return *file;
}

void DcpCheckpoint::check_file(const format::Place& place, const std::string& reader) {
  if (place.file < 0) {
    throw std::runtime_error(ErrorText(kOperation, "the metadata do not say where a part of a tensor lies")
                                 .fact("checkpoint", path_)
                                 .fact("reading", reader)
                                 .help("another checkpoint: this one is not complete"));
  }
  const BlockFile& stored = file(place.file);
  if (place.offset >= 0 && place.length >= 0 && place.offset <= stored.size() - place.length) return;
  throw std::runtime_error(ErrorText(kOperation, "a file ends too early")
                               .fact("file", stored.path())
                               .fact("bytes wanted", fmt::format("{} to {}", place.offset, place.offset + place.length))
                               .fact("bytes there", fmt::to_string(stored.size()))
                               .fact("reading", reader)
                               .help("another checkpoint: this file has lost its end"));
}

BlockFile& DcpCheckpoint::decoded(const format::Place& place, const std::string& reader) {
  auto& item = decoded_[{place.file, place.offset}];
  if (item) return *item;
  std::string bytes(static_cast<size_t>(place.length), '\0');
  BlockFile& stored = file(place.file);
  const FileRun run{place.offset, place.length, reinterpret_cast<std::byte*>(bytes.data())};
  stored.read({&run, 1}, reader);
  const auto& transforms = metadata_.transforms.at(static_cast<size_t>(place.transforms));
  item = std::make_unique<BlockFile>(
      fmt::format("{}, the item at byte {}", stored.path(), place.offset),
      std::make_shared<MemoryFile>(format::decode(transforms, std::as_bytes(std::span(bytes)), kMostDecoded)), nullptr);
  return *item;
}

StoredElements DcpCheckpoint::locate_in_archive(BlockFile& file, int64_t offset, int64_t length,
                                                const std::string& reader) {
  const FileSource source(file, offset, length, reader);
  const format::Archive archive = format::read_archive(source, file.path());
  const format::Record* pickled = archive.find("data.pkl");
  if (pickled == nullptr) {
    throw std::invalid_argument(ErrorText(kOperation, "an item has no data.pkl")
                                    .fact("file", file.path())
                                    .fact("reading", reader)
                                    .help("another checkpoint: this one is damaged"));
  }
  const std::string bytes = format::read_record(source, *pickled, file.path());
  const format::Value value =
      format::unpickle(std::as_bytes(std::span(bytes)), {.operation = kOperation, .source = file.path()});
  const auto* ref = value.as<format::TensorRef>();
  const format::Record* record = ref == nullptr ? nullptr : archive.find("data/" + ref->storage);
  if (record == nullptr || !fits(*ref, record->size)) {
    throw std::invalid_argument(ErrorText(kOperation, "an item of a tensor holds no tensor that fits its bytes")
                                    .fact("file", file.path())
                                    .fact("item", format::to_string(value))
                                    .fact("reading", reader)
                                    .help("another checkpoint: this one is damaged"));
  }
  StoredElements elements{
      &file, offset + record->offset + ref->offset * size_of(ref->dtype), ref->dtype, ref->sizes, ref->strides, {}};
  if (ref->offset == 0 && record->size == numel(ref->sizes) * size_of(ref->dtype)) elements.crc = record->crc;
  return elements;
}

StoredElements DcpCheckpoint::locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) {
  const format::Place& place = entry.places[chunk];
  const auto sizes = entry.sizes(chunk);
  if (place.transforms >= 0) {
    BlockFile& item = decoded(place, reader);
    return locate_in_archive(item, 0, item.size(), reader);
  }
  BlockFile& stored = file(place.file);
  // Most items are what torch.save writes of a tensor in row-major order: then their bytes are known beforehand.
  format::TensorItem item{entry.dtype, {sizes.begin(), sizes.end()}, {}};
  item.strides = contiguous_strides(item.sizes);
  const format::ItemLengths lengths = format::lengths_of(item);
  if (lengths.total() == place.length) {
    const std::string expected = format::head_of(item);
    std::string head(expected.size(), '\0');
    stored.read_ahead({place.offset, static_cast<int64_t>(head.size()), reinterpret_cast<std::byte*>(head.data())},
                      reader);
    if (head == expected) {
      StoredElements elements{&stored, place.offset + lengths.head, item.dtype, item.sizes, item.strides, {}};
      if (!stored.has_digests() && verify_ && lengths.data > 0) {
        elements.crc = crc_behind(stored, elements.offset + lengths.data, reader);
      }
      return elements;
    }
  }
  StoredElements elements = locate_in_archive(stored, place.offset, place.length, reader);
  if (!std::equal(sizes.begin(), sizes.end(), elements.sizes.begin(), elements.sizes.end())) {
    throw std::invalid_argument(ErrorText(kOperation, "an item has another size than the metadata say")
                                    .fact("file", stored.path())
                                    .fact("item", to_string(elements.sizes))
                                    .fact("metadata", to_string(Dims(sizes.begin(), sizes.end())))
                                    .fact("reading", reader)
                                    .help("another checkpoint: this one is damaged"));
  }
  return elements;
}

StateValue DcpCheckpoint::object(const format::Place& place, const std::string& reader) {
  BlockFile& stored = place.transforms >= 0 ? decoded(place, reader) : file(place.file);
  const int64_t offset = place.transforms >= 0 ? 0 : place.offset;
  const int64_t length = place.transforms >= 0 ? stored.size() : place.length;
  const FileSource source(stored, offset, length, reader);
  const format::Archive archive = format::read_archive(source, stored.path());
  const format::Record* pickled = archive.find("data.pkl");
  if (pickled == nullptr) {
    throw std::invalid_argument(ErrorText(kOperation, "an item has no data.pkl")
                                    .fact("file", stored.path())
                                    .fact("reading", reader)
                                    .help("another checkpoint: this one is damaged"));
  }
  const std::string bytes = format::read_record(source, *pickled, stored.path());
  const format::Value value =
      format::unpickle(std::as_bytes(std::span(bytes)), {.operation = kOperation, .source = stored.path()});
  const auto tensor_of = [&](const format::TensorRef& ref) {
    const format::Record* record = archive.find("data/" + ref.storage);
    if (record == nullptr) {
      throw std::invalid_argument(ErrorText(kOperation, "a tensor inside an object has no data")
                                      .fact("file", stored.path())
                                      .fact("record", "data/" + ref.storage)
                                      .fact("reading", reader)
                                      .help("another checkpoint: this one is damaged"));
    }
    const std::string data = format::read_record(source, *record, stored.path());
    return tensor_from(ref, std::as_bytes(std::span(data)), reader);
  };
  if (auto converted = from_pickle(value, tensor_of)) return std::move(*converted);
  std::string archive_bytes(static_cast<size_t>(length), '\0');
  source.read(0, std::as_writable_bytes(std::span(archive_bytes)));
  return StateOpaque{std::move(archive_bytes)};
}

int64_t DcpCheckpoint::bytes_read() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += file ? file->bytes_read() : 0;
  return bytes;
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::shared_ptr<Storage>& storage, const std::string& path,
                                                  bool verify) {
  if (DcpCheckpoint::is_at(*storage, path)) return std::make_unique<DcpCheckpoint>(storage, path, verify);
  std::string there;
  for (const std::string& name : storage->list(path)) {
    if (there.size() > 200) {
      there += ", ...";
      break;
    }
    there += (there.empty() ? "" : ", ") + name;
  }
  throw std::runtime_error(ErrorText(kOperation, "there is no checkpoint at this path")
                               .fact("path", path)
                               .fact("looked for", ".metadata, __0.metadata")
                               .fact("found", there.empty() ? "nothing" : there)
                               .help("the folder that was given to save"));
}

}  // namespace sherd::detail
