#include "format/number_keys.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>
#include <set>

namespace sherd::format {
namespace {

using Path = std::vector<PathPart>;
using Lengths = std::map<size_t, std::set<Path>>;

Lengths by_length(const DictPaths& dicts) {
  Lengths lengths;
  for (const Path& dict : dicts) lengths[dict.size()].insert(dict);
  return lengths;
}

Path beginning(const Path& path, size_t length) {
  return {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length)};
}

bool is_number(const PathPart& key) { return std::holds_alternative<int64_t>(key); }

std::optional<PathPart> as_text(const PathPart& key) {
  const auto* number = std::get_if<int64_t>(&key);
  return number != nullptr ? std::optional<PathPart>(fmt::to_string(*number)) : std::nullopt;
}

// Of a text that is what an int is written as: not of "007".
std::optional<PathPart> as_number(const PathPart& key) {
  const auto* text = std::get_if<std::string>(&key);
  int64_t number = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool is_all = error == std::errc() && end == text->data() + text->size() && fmt::to_string(number) == *text;
  return is_all ? std::optional<PathPart>(number) : std::nullopt;
}

bool reads_as_number(const PathPart& key) { return as_number(key).has_value(); }

/// Changes the keys of these dicts, whose paths have `length` parts, but of those that have a key that is in the way.
void change_keys(StatePlaces& places, size_t length, std::set<Path> dicts, bool (*is_in_the_way)(const PathPart&),
                 std::optional<PathPart> (*changed)(const PathPart&)) {
  const auto dict_of = [&](const Path& path) {
    return path.size() > length ? dicts.find(beginning(path, length)) : dicts.end();
  };
  for (const auto& [name, path] : places) {
    const auto dict = dict_of(path);
    if (dict != dicts.end() && is_in_the_way(path[length])) dicts.erase(dict);
  }
  for (auto& [name, path] : places) {
    if (dict_of(path) == dicts.end()) continue;
    if (auto key = changed(path[length])) path[length] = std::move(*key);
  }
}

}  // namespace

StatePlaces with_text_keys(StatePlaces places, const DictPaths& dicts) {
  // Inner ones first: they are found by paths that have ints.
  const Lengths lengths = by_length(dicts);
  for (auto last = lengths.rbegin(); last != lengths.rend(); ++last) {
    change_keys(places, last->first, last->second, reads_as_number, as_text);
  }
  return places;
}

StatePlaces with_number_keys(StatePlaces places, const DictPaths& dicts) {
  for (const auto& [length, paths] : by_length(dicts)) change_keys(places, length, paths, is_number, as_number);
  return places;
}

DictPaths with_numbers_below(const StatePlaces& places, const DictPaths& dicts) {
  std::set<Path> found;
  for (const auto& [length, paths] : by_length(dicts)) {
    for (const auto& [name, path] : places) {
      if (path.size() > length && is_number(path[length])) found.insert(beginning(path, length));
    }
  }
  DictPaths kept;
  for (const Path& dict : dicts) {
    if (found.contains(dict)) kept.push_back(dict);
  }
  return kept;
}

}  // namespace sherd::format
