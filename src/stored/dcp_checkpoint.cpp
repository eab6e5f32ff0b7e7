#include "stored/dcp_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "format/archive.h"
#include "format/saved.h"
#include "format/transforms.h"
#include "sherd/damage.h"
#include "sherd/error.h"
#include "storage/open_files.h"
#include "stored/base_blocks.h"
#include "stored/copy_elements.h"
#include "stored/file_stream.h"
#include "stored/memory_file.h"
#include "stored/merge_metadata.h"
#include "stored/open_block_file.h"
#include "stored/read_file.h"
#include "stored/read_manifest.h"

namespace sherd::stored {
namespace {

constexpr const char* kMetadata = DcpCheckpoint::kMetadata;

// 3 in "__3.metadata": what each rank writes where ranks do not talk while saving.
std::optional<int64_t> rank_of_metadata(std::string_view name) {
  if (!name.starts_with("__") || !name.ends_with(kMetadata)) return std::nullopt;
  name.remove_prefix(2);
  name.remove_suffix(std::string_view(kMetadata).size());
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end != name.data() + name.size() || rank < 0) return std::nullopt;
  return rank;
}

std::map<int64_t, std::string> rank_metadata(const Storage& storage, const std::string& path) {
  std::map<int64_t, std::string> names;
  for (const std::string& name : storage.list(path)) {
    if (const auto rank = rank_of_metadata(name)) names[*rank] = name;
  }
  return names;
}

// What `rank` saved, the first bytes of it. Nothing is known of it yet: where it is not there, or is not read after
// all, a few milliseconds of a disk are lost.
void expect_own_file(const Storage& storage, const std::string& path, int64_t rank) {
  constexpr int64_t kMost = int64_t{16} << 20;
  if (!storage.replaces_whole_folders()) return;  // an object store, which has no place to bring it to
  const std::string name = storage.join(path, fmt::format("__{}_0.distcp", rank));
  try {
    if (!storage.exists(name)) return;
    const auto file = storage.open(name);
    if (file->size() > 0 && file->size() <= kMost) file->expect(0, file->size());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): who reads it is told
  }
}

// Whether an id is that of another save, not this one with a damaged character or two.
bool is_another_id(const std::string& id, const std::string& own) {
  size_t different = id.size() > own.size() ? id.size() - own.size() : own.size() - id.size();
  for (size_t i = 0; i < std::min(id.size(), own.size()); ++i) different += id[i] != own[i] ? 1 : 0;
  return different > 4;
}

}  // namespace

bool DcpCheckpoint::is_in(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name == kMetadata || rank_of_metadata(name); });
}

DcpCheckpoint::DcpCheckpoint(std::shared_ptr<Storage> storage, std::string path, OpenOptions options)
    : storage_(std::move(storage)), path_(std::move(path)), options_(std::move(options)) {
  take_manifest(format::kManifestName);
  read_metadata();
  files_.resize(metadata_.files.size());
}

void DcpCheckpoint::take_manifest(const std::string& name) {
  bool damaged = false;
  const std::string file = storage_->join(path_, name);
  auto found = open_manifest(*storage_, file, options_, damaged);
  if (found) manifest_ = std::move(found);
  if (damaged) damaged_manifest_ = file;
}

// A small file, whole, compared with its digest.
std::string DcpCheckpoint::read_checked(const std::string& name) {
  const std::string file = storage_->join(path_, name);
  std::shared_ptr<const StoredFile> stored = storage_->open(file);
  std::string bytes(static_cast<size_t>(stored->size()), '\0');
  BlockFile blocks(file, stored, nullptr, options_);
  const FileRun run{0, blocks.size(), reinterpret_cast<std::byte*>(bytes.data())};
  if (run.size > 0) blocks.read({&run, 1}, "the metadata");
  return bytes;
}

void DcpCheckpoint::read_rank_metadata() {
  std::vector<RankMetadata> ranks;
  for (const auto& [rank, name] : rank_metadata(*storage_, path_)) {
    const std::string bytes = read_checked(name);
    ranks.push_back({rank, format::decode_metadata(std::as_bytes(std::span(bytes)), storage_->join(path_, name))});
  }
  MergedMetadata merged = merge_metadata(std::move(ranks), options_.rank, options_.operation);
  metadata_ = std::move(merged.metadata);
  std::set<std::string> names;
  for (OtherEntry& other : merged.others) {
    names.insert(other.entry.name);
    if (!options_.every_rank) continue;
    other.entry.name += fmt::format(" (rank {})", other.rank);
    metadata_.entries.push_back(std::move(other.entry));
  }
  of_each_rank_.assign(names.begin(), names.end());
}

void DcpCheckpoint::read_metadata() {
  const std::string file = storage_->join(path_, kMetadata);
  if (!storage_->exists(file)) {
    read_rank_metadata();
    manifest_.reset();
    return;
  }
  const std::string bytes = read_checked(kMetadata);
  if (options_.loads) expect_own_file(*storage_, path_, options_.rank);  // behind what is waited for, not before it
  std::optional<format::Metadata> decoded;
  const auto decode = [&] { decoded = format::decode_metadata(std::as_bytes(std::span(bytes)), file); };
  Told told = manifest_ ? compare(bytes) : Told::of_another;
  if (told == Told::of_another) {
    manifest_.reset();
    decode();
    take_named_manifest(*decoded);
    if (manifest_) told = compare(bytes);
  }
  if (told == Told::damaged && options_.verify && !options_.tolerant) {
    throw DamagedCheckpoint(ErrorText(options_.operation, "a file is damaged: its bytes are not those that were saved")
                                .fact("file", file)
                                .fact("bytes", fmt::format("0 to {}", bytes.size()))
                                .help(take_as_is(options_)));
  }
  if (told != Told::same) manifest_.reset();
  if (!decoded) decode();
  metadata_ = std::move(*decoded);
  if (told == Told::of_another) miss_manifest();
}

// Another program may have written a checkpoint over the one that the manifest tells of. Then it says so itself.
DcpCheckpoint::Told DcpCheckpoint::compare(const std::string& bytes) const {
  const format::ManifestFile* digests = manifest_->find(kMetadata);
  bool same = digests != nullptr && digests->length == static_cast<int64_t>(bytes.size());
  for (size_t i = 0; same && i < digests->blocks.size(); ++i) {
    const auto block = std::as_bytes(std::span(bytes)).subspan(i * format::kBlock);
    same = format::digest_of(block.first(std::min<size_t>(block.size(), format::kBlock))) == digests->blocks[i];
  }
  if (same) return Told::same;
  try {
    const std::string id = format::decode_metadata(std::as_bytes(std::span(bytes)), kMetadata).save_id;
    return !id.empty() && is_another_id(id, manifest_->id) ? Told::of_another : Told::damaged;
  } catch (const std::invalid_argument&) {
    return Told::damaged;
  }
}

// On storages that cannot replace a folder its name has the id of the save, which is also in the metadata. Either may
// be damaged: the one that is not leads to it.
void DcpCheckpoint::take_named_manifest(const format::Metadata& metadata) {
  if (!metadata.manifest.empty() && metadata.manifest != format::kManifestName) take_manifest(metadata.manifest);
  if (!manifest_ && !metadata.save_id.empty() && !storage_->replaces_whole_folders()) {
    take_manifest(format::manifest_name(metadata.save_id));
  }
}

// Without it nothing would be compared: that it is gone must not look like a checkpoint that never had one.
void DcpCheckpoint::miss_manifest() {
  if (metadata_.manifest.empty() || !damaged_manifest_.empty()) return;
  missing_manifest_ = storage_->join(path_, metadata_.manifest);
  if (options_.verify && !options_.tolerant) throw_missing_manifest(*storage_, missing_manifest_, kMetadata, options_);
}

BlockFile::OpenedFile DcpCheckpoint::base_file(const format::BlockPlace& place) {
  auto& file = base_files_[{place.base, place.file}];
  if (file.second) return file;
  const std::string folder =
      place.base == 0 ? path_ : base_path(path_, manifest_->bases.at(static_cast<size_t>(place.base) - 1));
  const std::string name = storage_->join(folder, manifest_->stored_files.at(static_cast<size_t>(place.file)));
  if (!storage_->exists(name)) {
    throw std::runtime_error(
        ErrorText(options_.operation, "a file of the checkpoint that this one builds on is missing")
            .fact("checkpoint", path_)
            .fact("base", folder)
            .fact("file", name)
            .help("bring the base back; checkpoints saved without a base need no other"));
  }
  return file = {name, open_while_read(storage_, name)};
}

std::string DcpCheckpoint::path_of_file(int32_t number) const {
  return storage_->join(path_, metadata_.files.at(static_cast<size_t>(number)));
}

BlockFile& DcpCheckpoint::file(int32_t number) {
  auto& file = files_.at(static_cast<size_t>(number));
  if (file) return *file;
  const std::string& name = metadata_.files[static_cast<size_t>(number)];
  const std::string path = path_of_file(number);
  const format::ManifestFile* digests = manifest_ ? manifest_->find(name) : nullptr;
  if (digests != nullptr && !digests->places.empty()) {
    file = std::make_unique<BlockFile>(
        path, *digests, [this](const format::BlockPlace& place) { return base_file(place); }, options_);
    return *file;
  }
  const std::string& lost = damaged_manifest_.empty() ? missing_manifest_ : damaged_manifest_;
  if (!lost.empty() && !storage_->exists(path) &&
      storage_->exists(storage_->join(path_, FileStream::stored_name(name, true)))) {
    throw std::runtime_error(
        ErrorText(options_.operation,
                  fmt::format("the manifest of the checkpoint is {}, and says where on its base the bytes are",
                              damaged_manifest_.empty() ? "missing" : "damaged"))
            .fact("file", lost)
            .fact("wanted", path)
            .help("another checkpoint: this one cannot be read without its manifest"));
  }
  file = open_block_file(storage_, path, digests, options_);
  return *file;
}

void DcpCheckpoint::check_file(const format::Place& place, const std::string& reader) {
  if (place.file < 0) {
    throw std::runtime_error(ErrorText(options_.operation, "the metadata do not say where an item lies")
                                 .fact("checkpoint", path_)
                                 .fact("reading", reader)
                                 .help("another checkpoint: this one is not complete"));
  }
  const BlockFile& stored = file(place.file);
  if (place.offset >= 0 && place.length >= 0 && place.offset <= stored.size() - place.length) return;
  throw std::runtime_error(ErrorText(options_.operation, "a file ends too early")
                               .fact("file", stored.path())
                               .fact("bytes wanted", fmt::format("{} to {}", place.offset, place.offset + place.length))
                               .fact("bytes there", fmt::to_string(stored.size()))
                               .fact("reading", reader)
                               .help("another checkpoint: this file has lost its end"));
}

BlockFile& DcpCheckpoint::decoded(const format::Place& place, int64_t most, const std::string& reader) {
  if (decoded_at_ == std::pair(place.file, place.offset)) return *decoded_;
  std::string bytes(static_cast<size_t>(place.length), '\0');
  BlockFile& stored = file(place.file);
  const FileRun run{place.offset, place.length, reinterpret_cast<std::byte*>(bytes.data())};
  stored.read({&run, 1}, reader);
  const auto& transforms = metadata_.transforms.at(static_cast<size_t>(place.transforms));
  decoded_at_ = {-1, 0};
  std::string item =
      parse_item(place, reader, [&] { return format::decode(transforms, std::as_bytes(std::span(bytes)), most); });
  decoded_ = std::make_shared<BlockFile>(
      fmt::format("{}, decompressed from bytes {} to {}", stored.path(), place.offset, place.offset + place.length),
      std::make_shared<MemoryFile>(std::move(item)), nullptr, options_);
  decoded_at_ = {place.file, place.offset};
  return *decoded_;
}

StoredElements DcpCheckpoint::locate_in_archive(BlockFile& file, int64_t offset, int64_t length,
                                                const std::string& reader) {
  const FileSource source(file, offset, length, reader);
  const format::Saved saved = format::read_saved(source, file.path());
  const auto* ref = saved.value.as<format::TensorRef>();
  const format::Record* record = ref == nullptr ? nullptr : saved.archive.find("data/" + ref->storage);
  if (record == nullptr) {
    throw std::invalid_argument(ErrorText(options_.operation, "an item of a tensor holds no tensor")
                                    .fact("item", format::to_string(saved.value)));
  }
  StoredElements elements{
      &file, offset + record->offset + ref->offset * size_of(ref->dtype), ref->dtype, ref->sizes, ref->strides, {}};
  if (ref->offset == 0 && record->size == numel(ref->sizes) * size_of(ref->dtype)) elements.crc = record->crc;
  return elements;
}

std::optional<ExpectedElements> DcpCheckpoint::usual(const format::TensorEntry& entry, size_t chunk) {
  const format::Place& place = entry.places[chunk];
  const auto sizes = entry.sizes(chunk);
  format::TensorItem item{entry.dtype, {sizes.begin(), sizes.end()}, {}};
  item.strides = row_major(item.sizes);
  const format::ItemLengths lengths = format::lengths_of(item);
  if (place.transforms >= 0 || lengths.total() != place.length) return std::nullopt;
  if (!head_.bytes || item.dtype != head_.item.dtype || item.sizes != head_.item.sizes) {
    head_ = {item, std::make_shared<const std::string>(format::head_of(item))};
  }
  StoredElements elements{&file(place.file), place.offset + lengths.head, item.dtype, item.sizes, item.strides, {}};
  return ExpectedElements{std::move(elements), place.offset, head_.bytes};
}

std::optional<ExpectedElements> DcpCheckpoint::expected(const format::TensorEntry& entry, size_t chunk) {
  if (entry.places[chunk].length < kSmallItem) return std::nullopt;
  auto found = usual(entry, chunk);
  if (found) found->elements.crc_behind = !found->elements.file->has_digests();
  return found;
}

bool DcpCheckpoint::has_head(const ExpectedElements& expected, const format::Place& place, const std::string& reader) {
  BlockFile& stored = *expected.elements.file;
  std::string head(expected.head->size(), '\0');
  const FileRun run{place.offset, static_cast<int64_t>(head.size()), reinterpret_cast<std::byte*>(head.data())};
  if (place.length < kSmallItem) {
    stored.read_ahead(run, reader);
  } else {
    // As it is: what differs is read again with its digest, and what does not needs none. Reading its block here would
    // be once more, since the block ends in the elements.
    stored.peek(run, reader);
  }
  return head == *expected.head;
}

StoredElements DcpCheckpoint::locate(const format::TensorEntry& entry, size_t chunk, const std::string& reader) {
  const format::Place& place = entry.places[chunk];
  const auto sizes = entry.sizes(chunk);
  BlockFile& stored = file(place.file);
  if (auto found = usual(entry, chunk); found && has_head(*found, place, reader)) {
    StoredElements& elements = found->elements;
    const int64_t bytes = numel(elements.sizes) * size_of(elements.dtype);
    if (!stored.has_digests() && options_.verify && bytes > 0) {
      elements.crc = crc_behind(elements, reader);
    }
    return std::move(elements);
  }
  StoredElements elements;
  if (place.transforms >= 0) {
    const int64_t most = format::most_of_tensor(numel(entry.box(chunk)) * size_of(entry.dtype));
    BlockFile& item = decoded(place, most, reader);
    elements = parse_item(place, reader, [&] { return locate_in_archive(item, 0, item.size(), reader); });
    elements.decoded = decoded_;
    // Elements that lie on top of each other: nobody compresses those, and what a tensor takes is known only here.
    if (numel(elements.sizes) * size_of(elements.dtype) > item.size() + format::kMostUnfolded) {
      parse_item(place, reader, [&] {
        throw std::invalid_argument(ErrorText(options_.operation, "an item is much smaller than its tensor"));
      });
    }
  } else {
    elements = parse_item(place, reader, [&] { return locate_in_archive(stored, place.offset, place.length, reader); });
  }
  if (!std::equal(sizes.begin(), sizes.end(), elements.sizes.begin(), elements.sizes.end())) {
    throw std::invalid_argument(ErrorText(options_.operation, "an item has another size than the metadata say")
                                    .fact("file", stored.path())
                                    .fact("bytes", fmt::format("{} to {}", place.offset, place.offset + place.length))
                                    .fact("item", to_string(elements.sizes))
                                    .fact("metadata", to_string(Dims(sizes.begin(), sizes.end())))
                                    .fact("reading", reader)
                                    .help("another checkpoint: this one is damaged"));
  }
  return elements;
}

std::string DcpCheckpoint::object(const format::Place& place, const std::string& reader) {
  check_file(place, reader);
  BlockFile& stored =
      place.transforms >= 0 ? decoded(place, format::most_of_object(place.length), reader) : file(place.file);
  const int64_t offset = place.transforms >= 0 ? 0 : place.offset;
  const int64_t length = place.transforms >= 0 ? stored.size() : place.length;
  std::string archive(static_cast<size_t>(length), '\0');
  FileSource(stored, offset, length, reader).read(0, std::as_writable_bytes(std::span(archive)));
  return archive;
}

int64_t DcpCheckpoint::bytes_read() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += file ? file->bytes_read() : 0;
  return bytes;
}

}  // namespace sherd::stored
