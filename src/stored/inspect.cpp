#include "sherd/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "format/saved.h"
#include "stored/base_blocks.h"
#include "stored/open_known.h"
#include "stored/read_file.h"

namespace sherd {
namespace {

TensorInfo info_of(const std::string& name, const format::TensorEntry& entry) {
  TensorInfo tensor{.name = name,
                    .dtype = std::string(format::names_of(entry.dtype).text),
                    .size = entry.size,
                    .bytes = numel(entry.size) * size_of(entry.dtype),
                    .chunks = {}};
  tensor.chunks.reserve(entry.chunk_count());
  for (size_t i = 0; i < entry.chunk_count(); ++i) {
    const format::Place& place = entry.places[i];
    tensor.chunks.push_back({entry.box(i), place.file, place.offset, place.length});
  }
  return tensor;
}

std::string object_text(stored::StoredCheckpoint& checkpoint, const std::string& name, const format::Place& place,
                        const InspectOptions& options) {
  if (!options.objects || place.length > options.object_bytes) return fmt::format("{} bytes", place.length);
  try {
    const std::string archive = checkpoint.object(place, "object " + name);
    const format::MemorySource source(std::as_bytes(std::span(archive)));
    return to_string(format::read_saved(source, name).value, options.object_text);
  } catch (const std::exception& error) {
    // The rest can still be looked at: `sherd verify` has the whole text.
    const std::string_view text = error.what();
    return fmt::format("cannot be read: {}", text.substr(0, text.find('\n')));
  }
}

FileInfo file_info(const Storage& storage, const std::string& path, const std::string& name,
                   const format::ManifestFile* digests, const std::string& format) {
  FileInfo file{.name = name};
  if (digests != nullptr) {
    file.bytes = digests->length;
    file.check = FileInfo::Check::digests;
    for (size_t i = 0; i < digests->places.size(); ++i) {
      const int64_t begin = static_cast<int64_t>(i) * format::kBlock;
      if (digests->places[i].base != 0) file.bytes_in_bases += std::min(format::kBlock, file.bytes - begin);
    }
    if (!digests->places.empty()) return file;  // in pieces, elsewhere
  } else if (format != "safetensors") {
    file.check = FileInfo::Check::crc;
  }
  const std::string place = stored::file_path(storage, path, name);
  file.there = storage.exists(place);
  if (file.there) file.bytes = storage.open(place)->size();
  return file;
}

std::vector<BaseInfo> bases_of(const Storage& storage, const std::string& path, const format::Manifest& manifest) {
  std::vector<BaseInfo> bases;
  for (size_t i = 0; i < manifest.bases.size(); ++i) {
    BaseInfo base{stored::base_path(path, manifest.bases[i]), manifest.base_ids[i]};
    base.there = storage.exists(storage.join(base.path, ".metadata"));
    bases.push_back(std::move(base));
  }
  return bases;
}

}  // namespace

CheckpointInfo inspect_checkpoint(const std::string& path, const InspectOptions& options) {
  const auto storage = stored::storage_or_disk(options.storage);
  const auto checkpoint =
      stored::open_known(storage, path, {.verify = true, .operation = options.operation, .no_verify = "sherd verify"});
  const format::Metadata& metadata = checkpoint->metadata();
  CheckpointInfo info{.path = path, .format = checkpoint->format(), .id = metadata.save_id};
  info.of_each_rank = checkpoint->of_each_rank();
  for (const format::MetadataEntry& entry : metadata.entries) {
    if (const auto* tensor = std::get_if<format::TensorEntry>(&entry.content)) {
      info.tensors.push_back(info_of(entry.name, *tensor));
      info.tensor_bytes += info.tensors.back().bytes;
    } else {
      const format::Place& place = std::get<format::BytesEntry>(entry.content).place;
      ObjectInfo object{entry.name, object_text(*checkpoint, entry.name, place, options), place.file};
      if (info.format == "dcp") {  // in the others it has no bytes of its own
        object.offset = place.offset;
        object.bytes = place.length;
      }
      info.objects.push_back(std::move(object));
    }
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(info.tensors.begin(), info.tensors.end(), by_name);
  std::sort(info.objects.begin(), info.objects.end(), by_name);

  const format::Manifest* manifest = checkpoint->digests();
  for (const std::string& name : metadata.files) {
    const format::ManifestFile* digests = manifest != nullptr ? manifest->find(name) : nullptr;
    info.files.push_back(file_info(*storage, path, name, digests, info.format));
    info.file_bytes += info.files.back().bytes - info.files.back().bytes_in_bases;
  }
  if (manifest != nullptr) info.bases = bases_of(*storage, path, *manifest);
  return info;
}

}  // namespace sherd
