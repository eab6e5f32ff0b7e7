#include "stored/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::stored {

std::optional<std::vector<std::string>> match(std::string_view name, std::string_view pattern) {
  // Where the last star was tried, and what it has taken so far.
  struct Star {
    size_t pattern;
    size_t name;
    size_t taken;
  };
  std::vector<Star> stars;
  size_t at = 0;
  size_t in_name = 0;
  const auto step_back = [&] {
    // Only the last star needs to take more: what comes before it matched as early as it could.
    if (stars.empty() || stars.back().name + stars.back().taken >= name.size()) return false;
    Star& star = stars.back();
    ++star.taken;
    at = star.pattern + 1;
    in_name = star.name + star.taken;
    return true;
  };
  for (;;) {
    if (at < pattern.size() && pattern[at] == '*') {
      stars.push_back({at++, in_name, 0});
    } else if (at < pattern.size() && in_name < name.size() && pattern[at] == name[in_name]) {
      ++at;
      ++in_name;
    } else if (at == pattern.size() && in_name == name.size()) {
      break;
    } else if (!step_back()) {
      return std::nullopt;
    }
  }
  std::vector<std::string> texts;
  for (const Star& star : stars) texts.emplace_back(name.substr(star.name, star.taken));
  return texts;
}

NameChanges::NameChanges(const RewriteOptions& options) : options_(options), unused_(options.only) {
  unused_.insert(unused_.end(), options.drop.begin(), options.drop.end());
  for (const Renaming& renaming : options.rename) {
    unused_.push_back(renaming.pattern);
    if (std::ranges::count(renaming.replacement, '*') <= std::ranges::count(renaming.pattern, '*')) continue;
    throw std::invalid_argument(ErrorText(options.operation, "the new name has more stars than the old one")
                                    .fact("old name", renaming.pattern)
                                    .fact("new name", renaming.replacement)
                                    .help("as many stars on both sides: \"model.*=net.*\""));
  }
}

std::optional<std::string> NameChanges::operator()(const std::string& name) {
  bool kept = options_.only.empty();
  for (const std::string& pattern : options_.only) kept = matches(name, pattern) || kept;
  for (const std::string& pattern : options_.drop) kept = !matches(name, pattern) && kept;
  if (!kept) return std::nullopt;
  std::string changed = name;
  for (const Renaming& renaming : options_.rename) {
    const auto texts = match(changed, renaming.pattern);
    if (!texts) continue;
    std::erase(unused_, renaming.pattern);
    changed.clear();
    size_t star = 0;
    for (const char letter : renaming.replacement) letter == '*' ? changed += (*texts)[star++] : changed += letter;
  }
  if (!changed.empty() || name.empty()) return changed;
  throw std::invalid_argument(ErrorText(options_.operation, "renaming leaves nothing of a name")
                                  .fact("name", name)
                                  .help("another new name, or --drop (RewriteOptions{.drop}) to leave it out"));
}

bool NameChanges::matches(const std::string& name, const std::string& pattern) {
  if (!match(name, pattern)) return false;
  std::erase(unused_, pattern);
  return true;
}

void NameChanges::check_all_used() const {
  if (unused_.empty()) return;
  throw std::invalid_argument(ErrorText(options_.operation, "a pattern matches no entry")
                                  .fact("pattern", unused_.front())
                                  .help("`sherd inspect` shows the names; * stands for any text"));
}

}  // namespace sherd::stored

namespace sherd {

bool matches(std::string_view name, std::string_view pattern) { return stored::match(name, pattern).has_value(); }

}  // namespace sherd
