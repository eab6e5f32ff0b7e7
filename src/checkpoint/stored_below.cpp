#include "checkpoint/stored_below.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sherd::detail {
namespace {

using Parts = std::vector<format::PathPart>;

// In the order in which they were saved.
std::vector<const format::MetadataEntry*> entries_below(const std::string& name, const Entries& entries) {
  const std::string prefix = name + ".";
  std::vector<const format::MetadataEntry*> found;
  for (auto at = entries.lower_bound(prefix); at != entries.end() && at->first.starts_with(prefix); ++at) {
    found.push_back(at->second);
  }
  std::ranges::sort(found);
  return found;
}

// How many parts of a path have this name; nothing where no number of them has.
std::optional<size_t> length_of(const std::string& name, const Parts& path) {
  for (size_t length = 1; length <= path.size(); ++length) {
    const std::string first = to_string(StatePath(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length)));
    if (first == name) return length;
    if (first.size() > name.size()) break;
  }
  return std::nullopt;
}

StatePath joined(const StatePath& path, const Parts& saved, size_t length) {
  StatePath result = path;
  result.insert(result.end(), saved.begin() + static_cast<std::ptrdiff_t>(length), saved.end());
  return result;
}

// `saved` is where it stood, null where that is not known: it is a key of a dict then.
StatePath placed_below(const FlatLeaf& leaf, const Parts* saved, const format::MetadataEntry& entry) {
  const auto length = saved != nullptr ? length_of(leaf.name, *saved) : std::nullopt;
  if (length) return joined(leaf.path, *saved, *length);
  StatePath result = leaf.path;
  result.emplace_back(entry.name.substr(leaf.name.size() + 1));
  return result;
}

}  // namespace

bool is_empty(const StateValue& value) {
  return (value.dict() != nullptr && value.dict()->empty()) || (value.list() != nullptr && value.list()->empty());
}

std::map<std::string_view, const Parts*> known_paths(const format::Metadata& metadata) {
  std::map<std::string_view, const Parts*> found;
  if (!metadata.paths) return found;
  for (const auto& [name, parts] : *metadata.paths) found[name] = &parts;
  return found;
}

Filled filled_from_below(std::vector<FlatLeaf> leaves, const Entries& entries, const format::Metadata& metadata) {
  Filled result;
  std::optional<std::map<std::string_view, const Parts*>> known;
  for (FlatLeaf& leaf : leaves) {
    std::vector<const format::MetadataEntry*> contents;
    const bool takes_all = leaf.value.is_none() || is_empty(leaf.value);
    if (takes_all && !entries.contains(leaf.name)) contents = entries_below(leaf.name, entries);
    if (contents.empty()) {
      result.leaves.push_back(std::move(leaf));
      continue;
    }
    if (!known) known = known_paths(metadata);
    for (const format::MetadataEntry* entry : contents) {
      const auto found = known->find(entry->name);
      StatePath place = placed_below(leaf, found != known->end() ? found->second : nullptr, *entry);
      if (leaf.value.list() != nullptr && !std::holds_alternative<int64_t>(place[leaf.path.size()])) {
        result.faults.emplace_back(
            leaf.name, fmt::format("a dict in the checkpoint (\"{}\"), an empty list in the state", entry->name));
        break;
      }
      result.leaves.push_back({entry->name, std::move(place), {}});
    }
    for (const Parts& dict : metadata.dicts) {
      if (const auto length = length_of(leaf.name, dict)) result.dicts.push_back(joined(leaf.path, dict, *length));
    }
  }
  return result;
}

}  // namespace sherd::detail
