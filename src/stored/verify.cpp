#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <list>
#include <map>
#include <sstream>
#include <thread>

#include "format/transforms.h"
#include "sherd/inspect.h"
#include "stored/base_blocks.h"
#include "stored/open_known.h"
#include "stored/read_file.h"
#include "stored/verify_bytes.h"

namespace sherd {
namespace {

using format::Place;
using format::TensorEntry;

constexpr const char* kMetadata = ".metadata";

std::string first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

// Which tensors and objects lie in which bytes of a file.
struct Occupied {
  int64_t begin;
  int64_t end;
  size_t entry;
};

class Verification {
 public:
  Verification(const std::string& path, const VerifyOptions& options)
      : path_(path),
        options_(options),
        storage_(stored::storage_or_disk(options.storage)),
        bytes_(*storage_, damage_) {}

  VerifyResult run() {
    open();
    if (structure_) {
      count_entries();
      index_places();
      check_coverage();
    }
    check_bases();
    add_files();
    const size_t cores = std::max(1U, std::thread::hardware_concurrency());
    result_.bytes = bytes_.run(options_.threads > 0 ? options_.threads : cores, options_.progress);
    result_.digests = bytes_.digests();
    result_.crcs = bytes_.crcs();
    result_.damage = damage_.take();
    if (structure_) {
      name_damage();
      check_items();
    }
    return std::move(result_);
  }

 private:
  // Once as the library opens it; once so that what is damaged can be looked at nevertheless.
  void open() {
    std::unique_ptr<stored::StoredCheckpoint> strict;
    bool damaged_manifest = !read_manifest();
    const auto add_metadata = [&](const DamagedCheckpoint& error) {
      const std::string name = named_by(error);
      damage_.add({.problem = "the metadata cannot be read",
                   .file = name,
                   .bytes = all_bytes(name),
                   .detail = first_line(error)});
    };
    std::optional<DamagedCheckpoint> refused;
    try {
      structure_ =
          stored::open_known(storage_, path_, {.verify = false, .every_rank = true, .operation = options_.operation});
      result_.format = structure_->format();
      const std::string& missing = structure_->missing_manifest();
      if (!missing.empty()) {
        damage_.add({.problem = "the file is missing",
                     .file = missing.substr(missing.rfind('/') + 1),
                     .detail = "it has the digests of the others"});
        damaged_manifest = true;
      }
    } catch (const DamagedCheckpoint& error) {
      refused = error;
    }
    try {
      strict = stored::open_known(storage_, path_, {.verify = true, .operation = options_.operation});
    } catch (const DamagedCheckpoint& error) {
      if (!damaged_manifest) add_metadata(error);
    }
    if (refused && damaged_manifest) add_metadata(*refused);  // else told already
    if (strict && !structure_) result_.format = strict->format();
    if (strict) manifest_ = strict->digests() != nullptr ? std::optional(*strict->digests()) : std::nullopt;
  }

  // The file of the checkpoint that an error tells of: an index, the metadata of one rank, a file with a header.
  std::string named_by(const DamagedCheckpoint& error) const {
    const std::string folder = path_ + "/";
    std::istringstream lines(error.what());
    for (std::string line; std::getline(lines, line);) {
      for (const std::string_view fact : {"  in: ", "  file: "}) {
        if (!line.starts_with(fact) || line.compare(fact.size(), folder.size(), folder) != 0) continue;
        std::string name = line.substr(fact.size() + folder.size());
        if (storage_->exists(storage_->join(path_, name))) return name;
      }
    }
    return metadata_name();
  }

  std::string metadata_name() const {
    if (storage_->exists(storage_->join(path_, kMetadata))) return kMetadata;
    return path_.substr(path_.rfind('/') + 1);
  }

  std::optional<Damage::Bytes> all_bytes(const std::string& name) const {
    const std::string file = stored::file_path(*storage_, path_, name);
    if (!storage_->exists(file) || storage_->is_folder(file)) return std::nullopt;
    return Damage::Bytes{0, storage_->open(file)->size()};
  }

  // False where there is one that cannot be read.
  bool read_manifest() {
    std::string name;
    try {
      name = stored::manifest_of(*storage_, path_);
    } catch (const std::invalid_argument&) {  // the metadata, which are told of when they are opened
      return true;
    }
    const std::string file = storage_->join(path_, name);
    if (!storage_->exists(file)) return true;
    try {
      const std::string bytes = stored::read_file(*storage_, file);
      manifest_ = format::decode_manifest(std::as_bytes(std::span(bytes)), file);
    } catch (const std::invalid_argument& error) {
      damage_.add({.problem = "the manifest cannot be read",
                   .file = name,
                   .bytes = all_bytes(name),
                   .detail = first_line(error)});
      return false;
    }
    return true;
  }

  const format::Metadata& metadata() const { return structure_->metadata(); }

  void count_entries() {
    for (const auto& entry : metadata().entries) {
      ++(std::holds_alternative<TensorEntry>(entry.content) ? result_.tensors : result_.objects);
    }
  }

  void index_places() {
    occupied_.resize(metadata().files.size());
    const auto add = [&](const Place& place, size_t entry) {
      if (place.file >= 0) {
        occupied_[static_cast<size_t>(place.file)].push_back({place.offset, place.offset + place.length, entry});
      } else if (result_.format == "dcp") {  // torch.save keeps tensors without data
        damage_.add({.problem = "the metadata do not say where it lies",
                     .file = {},
                     .names = {metadata().entries[entry].name}});
      }
    };
    for (size_t i = 0; i < metadata().entries.size(); ++i) {
      const auto& content = metadata().entries[i].content;
      if (const auto* tensor = std::get_if<TensorEntry>(&content)) {
        for (size_t c = 0; c < tensor->chunk_count(); ++c) {
          // Ranks without a part say so, and write nothing.
          if (tensor->places[c].file >= 0 || numel(tensor->box(c)) > 0) add(tensor->places[c], i);
        }
      } else if (result_.format == "dcp") {  // in the others they have no bytes of their own
        add(std::get<format::BytesEntry>(content).place, i);
      }
    }
    for (auto& file : occupied_) {
      std::sort(file.begin(), file.end(), [](const Occupied& a, const Occupied& b) { return a.begin < b.begin; });
    }
  }

  void check_coverage() {
    for (const auto& entry : metadata().entries) {
      const auto* tensor = std::get_if<TensorEntry>(&entry.content);
      if (tensor == nullptr || numel(tensor->size) == 0) continue;
      std::vector<Box> boxes;
      boxes.reserve(tensor->chunk_count());
      for (size_t i = 0; i < tensor->chunk_count(); ++i) boxes.push_back(tensor->box(i));
      const auto fault = find_tiling_fault(boxes, tensor->size);
      if (!fault) continue;
      const char* problem = fault->kind == TilingFault::Kind::hole      ? "a part of the tensor is stored nowhere"
                            : fault->kind == TilingFault::Kind::overlap ? "a part of the tensor is stored twice"
                                                                        : "a chunk lies outside of the tensor";
      damage_.add({.problem = problem,
                   .file = {},
                   .names = {entry.name},
                   .detail = fmt::format("{} of {}", to_string(fault->box), to_string(tensor->size))});
    }
  }

  void check_bases() {
    if (!manifest_) return;
    for (size_t i = 0; i < manifest_->bases.size(); ++i) {
      const std::string base = stored::base_path(path_, manifest_->bases[i]);
      try {
        const std::string file = storage_->join(base, stored::manifest_of(*storage_, base));
        if (!storage_->exists(file)) continue;  // its files are asked for one by one
        const std::string bytes = stored::read_file(*storage_, file);
        const std::string id = format::decode_manifest(std::as_bytes(std::span(bytes)), file).id;
        if (id == manifest_->base_ids[i]) continue;
        damage_.add({.problem = "the base is another checkpoint than it was",
                     .file = base,
                     .detail = fmt::format("id saved {}, found {}", manifest_->base_ids[i], id)});
      } catch (const std::exception& error) {
        damage_.add({.problem = "the manifest of the base cannot be read", .file = base, .detail = first_line(error)});
      }
    }
  }

  void add_files() {
    std::map<std::string, int32_t> names;  // and their numbers
    if (structure_) {
      for (size_t i = 0; i < metadata().files.size(); ++i) names[metadata().files[i]] = static_cast<int32_t>(i);
    }
    if (manifest_) {
      for (const auto& file : manifest_->files) names.try_emplace(file.name, -1);
    }
    result_.files = static_cast<int64_t>(names.size());
    for (const auto& [name, number] : names) add_file(name, number);
  }

  std::string base_file(const format::BlockPlace& place) const {
    const std::string folder =
        place.base == 0 ? path_ : stored::base_path(path_, manifest_->bases.at(static_cast<size_t>(place.base) - 1));
    return storage_->join(folder, manifest_->stored_files.at(static_cast<size_t>(place.file)));
  }

  void add_file(const std::string& name, int32_t number) {
    const format::ManifestFile* digests = manifest_ ? manifest_->find(name) : nullptr;
    const std::string path = stored::file_path(*storage_, path_, name);
    if (digests != nullptr && !digests->places.empty()) {
      bytes_.add_blocks(name, path, *digests, [this](const format::BlockPlace& place) { return base_file(place); });
      return;
    }
    int64_t size = 0;
    try {
      if (!storage_->exists(path)) {
        damage_.add({.problem = "the file is missing", .file = name, .names = all_in(number)});
        return;
      }
      size = storage_->open(path)->size();
    } catch (const std::exception& error) {
      damage_.add({.problem = "cannot be read", .file = name, .names = all_in(number), .detail = first_line(error)});
      return;
    }
    if (digests != nullptr && digests->length != size) {
      damage_.add({.problem = "the file has another length than was saved",
                   .file = name,
                   .bytes = Damage::Bytes{std::min(size, digests->length), std::max(size, digests->length)},
                   .detail = fmt::format("bytes saved {}, there {}", digests->length, size)});
    }
    if (digests != nullptr) {
      if (digests->length <= size) {
        bytes_.add_blocks(name, path, *digests, {});
        return;
      }
      // What is left of it.
      format::ManifestFile& rest = cut_.emplace_back(*digests);
      rest.length = size / format::kBlock * format::kBlock;
      rest.blocks.resize(static_cast<size_t>(rest.length / format::kBlock));
      bytes_.add_blocks(name, path, rest, {});
      return;
    }
    if (number < 0) return;
    if (result_.format == "dcp") {
      add_items(name, path, size, occupied_[static_cast<size_t>(number)]);
    } else if (result_.format == "torch.save") {
      bytes_.add_archives(name, path, {{0, size, nullptr}});
    } else {
      result_.unchecked.push_back(name);
      bytes_.add_plain(name, path, size);
    }
  }

  // Items of a file that has no digests.
  void add_items(const std::string& name, const std::string& path, int64_t size, const std::vector<Occupied>& items) {
    std::vector<stored::ByteChecks::Item> archives;
    int64_t end = 0;
    for (const Occupied& item : items) {
      const std::string& entry = metadata().entries[item.entry].name;
      if (item.end > size) {
        damage_.add({.problem = "the file ends too early",
                     .file = name,
                     .bytes = Damage::Bytes{item.begin, item.end},
                     .names = {entry},
                     .detail = fmt::format("bytes there {}", size)});
        continue;
      }
      if (item.begin < end) {
        damage_.add({.problem = "two items lie in the same bytes",
                     .file = name,
                     .bytes = Damage::Bytes{item.begin, std::min(end, item.end)}});
      }
      end = std::max(end, item.end);
      archives.push_back(archive_of(item));
    }
    bytes_.add_archives(name, path, std::move(archives));
  }

  stored::ByteChecks::Item archive_of(const Occupied& item) const {
    stored::ByteChecks::Item archive{item.begin, item.end - item.begin};
    const auto take = [&](const Place& place, int64_t most) {
      if (place.transforms < 0) return;
      archive.transforms = &metadata().transforms[static_cast<size_t>(place.transforms)];
      archive.most = most;
    };
    const auto& content = metadata().entries[item.entry].content;
    if (const auto* object = std::get_if<format::BytesEntry>(&content)) {
      take(object->place, format::most_of_object(archive.length));
      return archive;
    }
    const auto& tensor = std::get<TensorEntry>(content);
    for (size_t i = 0; i < tensor.chunk_count() && archive.transforms == nullptr; ++i) {
      if (tensor.places[i].offset != item.begin) continue;
      take(tensor.places[i], format::most_of_tensor(numel(tensor.box(i)) * size_of(tensor.dtype)));
    }
    return archive;
  }

  std::vector<std::string> all_in(int32_t number) const {
    if (number < 0 || !structure_) return {};
    return names_in(number, {0, std::numeric_limits<int64_t>::max()});
  }

  std::vector<std::string> names_in(int32_t number, const Damage::Bytes& bytes) const {
    std::vector<std::string> names;
    for (const Occupied& item : occupied_[static_cast<size_t>(number)]) {
      if (item.begin >= bytes.end) break;
      if (item.end > bytes.begin) names.push_back(metadata().entries[item.entry].name);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  // Whose bytes are damaged.
  void name_damage() {
    std::map<std::string_view, int32_t> numbers;
    for (size_t i = 0; i < metadata().files.size(); ++i) numbers[metadata().files[i]] = static_cast<int32_t>(i);
    for (Damage& damage : result_.damage) {
      const auto number = numbers.find(damage.file);
      if (!damage.names.empty() || number == numbers.end()) continue;
      damage.names = damage.bytes ? names_in(number->second, *damage.bytes) : all_in(number->second);
      if (result_.format == "dcp" && damage.bytes && damage.names.size() > 1) narrow(damage, number->second);
    }
  }

  // A block holds many items: their own CRCs say which of them are damaged, unless it is what lies around them.
  void narrow(Damage& damage, int32_t number) const {
    try {
      const auto file = storage_->open(storage_->join(path_, damage.file));
      std::vector<std::string> names;
      for (const Occupied& item : occupied_[static_cast<size_t>(number)]) {
        if (item.begin >= damage.bytes->end || item.end <= damage.bytes->begin) continue;
        if (archive_of(item).transforms != nullptr ||
            !stored::has_whole_archive(*file, item.begin, item.end - item.begin)) {
          names.push_back(metadata().entries[item.entry].name);
        }
      }
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      if (!names.empty()) damage.names = std::move(names);
    } catch (const std::runtime_error&) {  // on a base there is no such file: all of them are named
    }
  }

  // Whether items hold what the metadata say, where their bytes are whole.
  void check_items() {
    std::vector<std::string> damaged;
    for (const Damage& damage : result_.damage) damaged.insert(damaged.end(), damage.names.begin(), damage.names.end());
    std::sort(damaged.begin(), damaged.end());
    for (const auto& entry : metadata().entries) {
      const auto* tensor = std::get_if<TensorEntry>(&entry.content);
      if (tensor == nullptr || std::binary_search(damaged.begin(), damaged.end(), entry.name)) continue;
      for (size_t i = 0; i < tensor->chunk_count(); ++i) {
        if (tensor->places[i].file < 0) continue;
        check_item(entry.name, *tensor, i);
      }
    }
  }

  void check_item(const std::string& name, const TensorEntry& tensor, size_t chunk) {
    const Place& place = tensor.places[chunk];
    Damage damage{.problem = "the item is not what the metadata say",
                  .file = metadata().files[static_cast<size_t>(place.file)],
                  .bytes = Damage::Bytes{place.offset, place.offset + place.length},
                  .names = {name}};
    try {
      const std::string reader = "tensor " + name;
      structure_->check_file(place, reader);
      const auto elements = structure_->locate(tensor, chunk, reader);
      if (elements.dtype == tensor.dtype) return;
      damage.detail = fmt::format("dtype {}, in the metadata {}", format::names_of(elements.dtype).text,
                                  format::names_of(tensor.dtype).text);
    } catch (const std::exception& error) {
      damage.detail = first_line(error);
    }
    result_.damage.push_back(std::move(damage));
  }

  const std::string& path_;
  const VerifyOptions& options_;
  std::shared_ptr<Storage> storage_;
  stored::DamageList damage_;
  stored::ByteChecks bytes_;
  VerifyResult result_;
  std::unique_ptr<stored::StoredCheckpoint> structure_;  // null where the metadata cannot be read at all
  std::optional<format::Manifest> manifest_;
  std::vector<std::vector<Occupied>> occupied_;  // by file
  std::list<format::ManifestFile> cut_;
};

}  // namespace

std::string to_string(const Damage& damage) {
  std::string text;
  if (!damage.file.empty()) text += damage.file;
  if (damage.bytes) text += fmt::format(", bytes {} to {}", damage.bytes->begin, damage.bytes->end);
  if (!text.empty()) text += ": ";
  text += damage.problem;
  if (!damage.names.empty()) {
    constexpr size_t kMost = 8;
    text += " (";
    for (size_t i = 0; i < std::min(damage.names.size(), kMost); ++i) {
      text.append(i > 0 ? ", " : "").append(damage.names[i]);
    }
    if (damage.names.size() > kMost) text += fmt::format(", and {} more", damage.names.size() - kMost);
    text += ")";
  }
  return text;
}

VerifyResult verify_checkpoint(const std::string& path, const VerifyOptions& options) {
  return Verification(path, options).run();
}

}  // namespace sherd
