#include "stored/target.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "format/manifest.h"
#include "sherd/error.h"
#include "storage/paths.h"

namespace sherd::stored {
namespace {

constexpr size_t kNamed = 3;

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

}  // namespace

bool is_of_checkpoint(std::string_view name) {
  if (name.starts_with(format::kManifestName) || name.starts_with(".metadata")) return true;
  constexpr std::string_view kEnds[] = {".metadata", ".distcp", ".distcp.blocks", ".safetensors",
                                        ".safetensors.index.json"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

void discard_stale_drafts(Storage& storage, const std::string& path) {
  for (const std::string& id : storage.drafts(path)) {
    if (is_new_id(id)) storage.draft(path, id)->discard();
  }
}

void check_target(const std::string& operation, const Storage& storage, const std::string& path, TargetKind kind) {
  const bool is_folder = storage.is_folder(path);
  if (kind == TargetKind::file && is_folder) {
    throw std::invalid_argument(ErrorText(operation, "there is a folder where the file is to be")
                                    .fact("path", path)
                                    .help("another path, or one without an ending for a folder"));
  }
  if (kind == TargetKind::file) return;
  if (!is_folder && storage.exists(path)) {
    throw std::invalid_argument(ErrorText(operation, "there is a file where the folder is to be")
                                    .fact("path", path)
                                    .help("another path, or remove the file first"));
  }
  std::vector<std::string> others = storage.list(path);
  std::erase_if(others, is_of_checkpoint);
  if (others.empty()) return;
  throw std::invalid_argument(
      ErrorText(operation, "the folder holds what is no checkpoint, and would be replaced as a whole")
          .fact("path", path)
          .fact("in it", list_of(others))
          .help("a folder of its own: " + path + "/checkpoint"));
}

}  // namespace sherd::stored
