#include "stored/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "format/manifest.h"
#include "format/safetensors.h"
#include "sherd/checkpoint_format.h"
#include "stored/base_blocks.h"
#include "stored/dcp_checkpoint.h"
#include "stored/read_file.h"

namespace sherd::stored {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kParts = ".parts";

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

std::vector<std::string> bases_of(const Storage& storage, const std::string& path) {
  try {
    const std::string file = storage.join(path, manifest_of(storage, path));
    if (!storage.exists(file)) return {};
    const std::string bytes = read_file(storage, file);
    auto bases = format::decode_manifest(std::as_bytes(std::span(bytes)), file).bases;
    for (std::string& base : bases) base = base_path(path, base);
    return bases;
  } catch (const std::exception&) {
    return {};
  }
}

std::vector<int64_t> steps_to_remove(const Storage& storage, const std::string& folder, const Retention& retention) {
  const auto there = steps_in(storage, folder);
  const auto path_of = [&](int64_t step) { return storage.join(folder, step_name(step)); };
  // What a kept one builds on stays, too.
  std::set<std::string> needed;
  for (size_t i = 0; i < there.size(); ++i) {
    const bool is_new = there.size() - i <= static_cast<size_t>(retention.keep_last);
    if (!is_new && (retention.keep_every <= 0 || there[i] % retention.keep_every != 0)) continue;
    needed.insert(path_of(there[i]));
    for (std::string& base : bases_of(storage, path_of(there[i]))) needed.insert(std::move(base));
  }
  std::vector<int64_t> removed;
  for (const int64_t step : there) {
    if (!needed.contains(path_of(step))) removed.push_back(step);
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
    if (DcpCheckpoint::is_in(storage.list(path))) parts.push_back(path);
  }
  return parts;
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
