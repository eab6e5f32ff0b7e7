#include "stored/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <utility>

#include "format/manifest.h"
#include "format/safetensors.h"
#include "sherd/checkpoint_format.h"
#include "sherd/error.h"
#include "stored/base_blocks.h"
#include "stored/dcp_checkpoint.h"
#include "stored/read_manifest.h"

namespace sherd::stored {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kParts = ".parts";

// Whether a save has made a folder: all of one, or what is left of it where its removal was stopped.
bool is_of_save(const std::vector<std::string>& names) {
  const auto is_known = [](std::string_view name) {
    return name == DcpCheckpoint::kMetadata || name.starts_with("__") || name.starts_with(format::kManifestName);
  };
  const auto is_manifest = [](std::string_view name) { return name.starts_with(format::kManifestName); };
  const bool has_manifest = std::ranges::any_of(names, is_manifest);
  return std::ranges::all_of(names, is_known) && (has_manifest || !DcpCheckpoint::is_in(names));
}

}  // namespace

std::string step_name(int64_t step) { return fmt::format("{}{}", kStep, step); }

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  name.remove_prefix(kStep.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

std::vector<int64_t> steps_in(const Storage& storage, const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : storage.list(folder)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::vector<std::string>> bases_of(const Storage& storage, const std::string& path) {
  std::optional<format::Manifest> manifest;
  try {
    manifest = read_manifest(storage, storage.join(path, manifest_of(storage, path)), false);
  } catch (const std::invalid_argument&) {  // it was read, and is none
    return std::nullopt;
  }
  std::vector<std::string> bases;
  if (!manifest) return bases;
  for (const std::string& base : manifest->bases) bases.push_back(base_path(path, base));
  return bases;
}

std::vector<int64_t> steps_on(const Storage& storage, const std::string& folder, int64_t step) {
  const auto path_of = [&](int64_t of) { return storage.join(folder, step_name(of)); };
  const std::string used = storage.full_path(path_of(step));
  std::vector<int64_t> users = steps_in(storage, folder);
  std::erase_if(users, [&](int64_t user) {
    const auto bases = bases_of(storage, path_of(user));
    return !bases ||
           std::ranges::none_of(*bases, [&](const std::string& base) { return storage.full_path(base) == used; });
  });
  std::ranges::reverse(users);
  return users;
}

namespace {

std::vector<int64_t> newest_first(std::vector<int64_t> steps, const std::vector<int64_t>& saved) {
  const auto age = [&](int64_t step) {
    return std::pair(std::find(saved.rbegin(), saved.rend(), step) - saved.rbegin(), -step);
  };
  std::sort(steps.begin(), steps.end(), [&](int64_t a, int64_t b) { return age(a) < age(b); });
  return steps;
}

}  // namespace

std::vector<int64_t> steps_to_remove(const Storage& storage, const std::string& folder, const Retention& retention) {
  const auto there = steps_in(storage, folder);
  const auto path_of = [&](int64_t step) { return storage.join(folder, step_name(step)); };
  int64_t left = retention.keep_last;
  int64_t oldest = std::numeric_limits<int64_t>::max();  // the least number among the newest
  std::set<std::string> needed;
  for (const int64_t step : newest_first(there, retention.saved)) {
    const bool is_multiple = retention.keep_every > 0 && step % retention.keep_every == 0;
    if (left == 0 && step < oldest && !is_multiple) continue;
    const auto bases = bases_of(storage, path_of(step));
    const bool is_good = bases && !retention.damaged.contains(step);
    if (is_good && left > 0) {
      --left;
      oldest = std::min(oldest, step);
    } else if (is_good && !is_multiple) {
      continue;
    }
    needed.insert(storage.full_path(path_of(step)));
    // What a kept one uses stays, too.
    for (const std::string& base : bases.value_or(std::vector<std::string>())) needed.insert(storage.full_path(base));
  }
  std::vector<int64_t> removed;
  for (const int64_t step : there) {
    if (!needed.contains(storage.full_path(path_of(step)))) removed.push_back(step);
  }
  return removed;
}

std::string parts_of(const std::string& file) { return fmt::format("{}{}", file, kParts); }

std::vector<std::string> parts_in(const Storage& storage, const std::string& folder) {
  std::vector<std::string> parts;
  for (const std::string& name : storage.list(folder)) {
    if (!name.ends_with(kParts)) continue;
    const std::string file = name.substr(0, name.size() - kParts.size());
    const std::string path = storage.join(folder, name);
    // Only what a save would have made: others may have folders of this ending, too.
    if (format_for(file, CheckpointFormat::automatic) == CheckpointFormat::dcp) continue;
    const std::vector<std::string> names = storage.list(path);
    if (DcpCheckpoint::is_in(names) || (!names.empty() && is_of_save(names))) parts.push_back(path);
  }
  return parts;
}

void discard_parts(const std::string& operation, Storage& storage, const std::string& file) {
  const std::string path = parts_of(file);
  const std::vector<std::string> names = storage.list(path);
  if (names.empty()) return;
  if (is_of_save(names)) return remove_checkpoint(storage, path);
  throw std::invalid_argument(ErrorText(operation, "the folder that ranks write their parts to holds something else")
                                  .fact("folder", path)
                                  .fact("in it", names.front())
                                  .help(fmt::format("move {} elsewhere, or save to another path than {}", path, file)));
}

void remove_checkpoint(Storage& storage, const std::string& path) {
  // What is removed file by file is no checkpoint any more from the first one on.
  if (!storage.replaces_whole_folders()) {
    for (const char* name : {".metadata", format::kManifestName, format::kSafetensorsIndex}) {
      storage.remove(storage.join(path, name));
    }
  }
  storage.remove(path);
}

}  // namespace sherd::stored
