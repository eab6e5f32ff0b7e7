#include "stored/base_blocks.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "format/dcp.h"
#include "sherd/error.h"
#include "stored/read_file.h"
#include "stored/read_manifest.h"

namespace sherd::stored {

std::string manifest_of(const Storage& storage, const std::string& path) {
  if (storage.replaces_whole_folders() || storage.exists(storage.join(path, format::kManifestName)))
    return format::kManifestName;
  const std::string file = storage.join(path, ".metadata");
  if (!storage.exists(file)) return format::kManifestName;
  const std::string bytes = read_file(storage, file);
  return format::manifest_name(format::decode_metadata(std::as_bytes(std::span(bytes)), file).save_id);
}

std::optional<format::Manifest> find_manifest(const Storage& storage, const std::string& path) {
  try {
    return read_manifest(storage, storage.join(path, manifest_of(storage, path)), true);
  } catch (const std::invalid_argument&) {  // the metadata, which say its name
    return std::nullopt;
  }
}

namespace {

// Another save may have taken the place of the one whose blocks are meant.
bool is_still_there(const Storage& storage, const std::string& path, const std::string& id) {
  if (!storage.exists(path)) return false;
  const auto manifest = find_manifest(storage, path);
  return manifest && manifest->id == id;
}

}  // namespace

BaseBlocks::BaseBlocks(const Storage& storage, const std::string& base, const std::string& path) {
  const std::string file = storage.join(base, manifest_of(storage, base));
  if (!storage.exists(file)) {
    throw std::runtime_error(ErrorText("save", "the base is no checkpoint with a manifest")
                                 .fact("base", base)
                                 .fact("missing", file)
                                 .help("the folder of a checkpoint that sherd saved, or no base"));
  }
  const std::string bytes = read_file(storage, file);
  const format::Manifest manifest = format::decode_manifest(std::as_bytes(std::span(bytes)), file);
  bases_.push_back(base_name(storage, path, base));
  ids_.push_back(manifest.id);
  std::vector<bool> is_there = {true};
  for (size_t i = 0; i < manifest.bases.size(); ++i) {
    const std::string other = base_path(base, manifest.bases[i]);
    bases_.push_back(base_name(storage, path, other));
    ids_.push_back(manifest.base_ids[i]);
    is_there.push_back(is_still_there(storage, other, manifest.base_ids[i]));
  }
  if (std::find(bases_.begin(), bases_.end(), base_name(storage, path, path)) != bases_.end()) {
    throw std::runtime_error(ErrorText("save", "a checkpoint cannot stand on itself")
                                 .fact("path", path)
                                 .fact("base", base)
                                 .help("another path, or no base"));
  }
  files_ = manifest.stored_files;
  for (const format::ManifestFile& stored : manifest.files) {
    const auto number = static_cast<int32_t>(files_.size());
    if (stored.places.empty()) files_.push_back(stored.name);
    for (size_t i = 0; i < stored.blocks.size(); ++i) {
      const auto start = static_cast<int64_t>(i) * format::kBlock;
      format::BlockPlace place{1, number, start};
      if (!stored.places.empty()) {
        place = stored.places[i];
        place.base += 1;
      }
      if (!is_there[static_cast<size_t>(place.base) - 1]) continue;
      blocks_.try_emplace(stored.blocks[i], Block{place, std::min(format::kBlock, stored.length - start)});
    }
  }
}

const format::BlockPlace* BaseBlocks::find(const format::Digest& digest, int64_t length) const {
  const auto found = blocks_.find(digest);
  return found != blocks_.end() && found->second.length == length ? &found->second.place : nullptr;
}

void drop_unused(format::Manifest& manifest) {
  std::vector<int32_t> bases(manifest.bases.size(), -1);
  std::vector<int32_t> files(manifest.stored_files.size(), -1);
  for (const format::ManifestFile& file : manifest.files) {
    for (const format::BlockPlace& place : file.places) {
      if (place.base > 0) bases.at(static_cast<size_t>(place.base) - 1) = 0;
      files.at(static_cast<size_t>(place.file)) = 0;
    }
  }
  format::Manifest used;
  for (size_t i = 0; i < bases.size(); ++i) {
    if (bases[i] < 0) continue;
    used.bases.push_back(std::move(manifest.bases[i]));
    used.base_ids.push_back(std::move(manifest.base_ids[i]));
    bases[i] = static_cast<int32_t>(used.bases.size());  // as places count them
  }
  std::map<std::string, int32_t> names;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i] < 0) continue;
    const auto [name, is_new] = names.try_emplace(manifest.stored_files[i], static_cast<int32_t>(names.size()));
    if (is_new) used.stored_files.push_back(name->first);
    files[i] = name->second;
  }
  for (format::ManifestFile& file : manifest.files) {
    for (format::BlockPlace& place : file.places) {
      if (place.base > 0) place.base = bases[static_cast<size_t>(place.base) - 1];
      place.file = files[static_cast<size_t>(place.file)];
    }
  }
  manifest.bases = std::move(used.bases);
  manifest.base_ids = std::move(used.base_ids);
  manifest.stored_files = std::move(used.stored_files);
}

namespace {

// A name that is not beside a checkpoint, and has no folder: "step-1" at the top of a bucket.
constexpr std::string_view kAtTheTop = "./";

std::string full_path(const Storage& storage, const std::string& path) {
  std::string full = storage.full_path(path);
  while (full.size() > 1 && full.back() == '/') full.pop_back();
  return full;
}

// What is before the name, with the slash.
std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace

std::string base_name(const Storage& storage, const std::string& from, const std::string& to) {
  const std::string base = full_path(storage, to);
  const std::string folder = folder_of(base);
  if (folder_of(full_path(storage, from)) == folder) return base.substr(folder.size());
  return folder.empty() ? std::string(kAtTheTop) + base : base;
}

std::string base_path(const std::string& from, const std::string& name) {
  if (name.starts_with(kAtTheTop)) return name.substr(kAtTheTop.size());
  if (name.find('/') != std::string::npos) return name;
  // In the words of the caller: what is beside a relative path is found beside it.
  const size_t slash = from.rfind('/', from.find_last_not_of('/'));
  return slash == std::string::npos ? name : from.substr(0, slash + 1) + name;
}

}  // namespace sherd::stored
