#include "stored/base_blocks.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "format/dcp.h"
#include "sherd/error.h"
#include "stored/read_file.h"

namespace sherd::stored {

std::string manifest_of(const Storage& storage, const std::string& path) {
  if (storage.replaces_whole_folders() || storage.exists(storage.join(path, format::kManifestName)))
    return format::kManifestName;
  const std::string file = storage.join(path, ".metadata");
  if (!storage.exists(file)) return format::kManifestName;
  const std::string bytes = read_file(storage, file);
  return format::manifest_name(format::decode_metadata(std::as_bytes(std::span(bytes)), file).save_id);
}

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
  bases_.push_back(base_name(path, base));
  ids_.push_back(manifest.id);
  for (size_t i = 0; i < manifest.bases.size(); ++i) {
    bases_.push_back(base_name(path, base_path(base, manifest.bases[i])));
    ids_.push_back(manifest.base_ids[i]);
  }
  if (std::find(bases_.begin(), bases_.end(), base_name(path, path)) != bases_.end()) {
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
      blocks_.try_emplace(stored.blocks[i], Block{place, std::min(format::kBlock, stored.length - start)});
    }
  }
}

const format::BlockPlace* BaseBlocks::find(const format::Digest& digest, int64_t length) const {
  const auto found = blocks_.find(digest);
  return found != blocks_.end() && found->second.length == length ? &found->second.place : nullptr;
}

namespace {

bool is_url(const std::string& path) { return path.find("://") != std::string::npos; }

}  // namespace

std::string plain_path(const std::string& path) {
  if (is_url(path)) return path;
  std::string from = path;
  if (!from.starts_with('/')) {
    std::string here(PATH_MAX, '\0');
    if (::getcwd(here.data(), here.size()) != nullptr) from = here.c_str() + ("/" + from);
  }
  std::string out;
  for (size_t at = 0; at < from.size();) {
    const size_t end = std::min(from.find('/', at), from.size());
    const std::string part = from.substr(at, end - at);
    if (!part.empty() && part != ".") out += "/" + part;
    at = end + 1;
  }
  return out.empty() ? "/" : out;
}

namespace {

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

std::string base_name(const std::string& from, const std::string& to) {
  const std::string base = plain_path(to);
  return parent_of(plain_path(from)) == parent_of(base) ? base.substr(base.rfind('/') + 1) : base;
}

std::string base_path(const std::string& from, const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  // In the words of the caller: what is beside a relative path is found beside it.
  const size_t slash = from.rfind('/', from.find_last_not_of('/'));
  return slash == std::string::npos ? name : from.substr(0, slash + 1) + name;
}

}  // namespace sherd::stored
