#include "stored/container_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::stored {
namespace {

using Path = std::vector<format::PathPart>;

Path beginning(const Path& path, size_t length) {
  return {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length)};
}

size_t common_length(const Path& a, const Path& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

bool is_number(const format::PathPart& key) { return std::holds_alternative<int64_t>(key); }

std::string text_of(const Path& path) {
  std::string text;
  for (const format::PathPart& part : path) {
    if (!text.empty()) text += '.';
    text += std::visit([](const auto& key) { return fmt::format("{}", key); }, part);
  }
  return text;
}

}  // namespace

void ContainerKinds::enter(const format::Metadata& metadata, const std::string& path) {
  source_ = path;
  numbered_ = {metadata.dicts.begin(), metadata.dicts.end()};
  dicts_.clear();
  ordered_.clear();
  last_from_.clear();
  last_to_.clear();
  for (const format::OrderedPlace& place : metadata.ordered) ordered_[place.path] = &place;
  if (!metadata.paths) return;
  Path last;
  for (const auto& [name, place] : *metadata.paths) {
    for (size_t length = common_length(last, place); length < place.size(); ++length) {
      if (!is_number(place[length])) dicts_.insert(beginning(place, length));
    }
    last = place;
  }
}

void ContainerKinds::add(const Path& from, const Path& to) {
  const size_t shift = from.size() - std::min(from.size(), to.size());
  // Most entries stand beside the one before, and what is around both is known.
  const size_t common = common_length(last_from_, from);
  const size_t known =
      last_shift_ != shift || common < shift ? 0 : std::min(common - shift, common_length(last_to_, to));
  for (size_t length = known; length < to.size(); ++length) {
    add_container(beginning(from, length + shift), beginning(to, length), is_number(to[length]));
  }
  last_from_ = from;
  last_to_ = to;
  last_shift_ = shift;
}

void ContainerKinds::add_container(const Path& old_path, const Path& new_path, bool has_number) {
  if (const auto found = ordered_.find(old_path); found != ordered_.end()) {
    const auto [place, is_new] = chosen_ordered_.try_emplace(new_path, format::OrderedPlace{new_path, {}});
    if (place->second.beside.as<format::None>() != nullptr) place->second.beside = found->second->beside;
  }
  if (new_path.empty()) return;  // the state itself is a dict anyway
  const bool is_numbered = numbered_.contains(old_path);
  const bool is_list = has_number && !is_numbered && !dicts_.contains(old_path);
  const auto [place, is_new] = origins_.try_emplace(new_path, Origin{source_, old_path, is_list});
  const Origin& first = place->second;
  if (!is_new && first.is_list != is_list && (first.source != source_ || first.path != old_path)) {
    const auto kind = [](bool list) { return list ? "a list in" : "a dict in"; };
    throw std::invalid_argument(ErrorText(operation_, "a list and a dict would become one container")
                                    .fact("container", text_of(new_path))
                                    .fact(kind(first.is_list), fmt::format("{}, {}", first.source, text_of(first.path)))
                                    .fact(kind(is_list), fmt::format("{}, {}", source_, text_of(old_path)))
                                    .help("a pattern that tells them apart, such as --rename \"*=a.*\""));
  }
  if (is_numbered) chosen_numbered_.insert(new_path);
}

void ContainerKinds::give(Chosen& chosen) && {
  chosen.dicts = {chosen_numbered_.begin(), chosen_numbered_.end()};
  for (auto& [path, place] : chosen_ordered_) chosen.ordered.push_back(std::move(place));
  const auto is_outer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  std::ranges::stable_sort(chosen.dicts, is_outer);
  std::ranges::stable_sort(chosen.ordered, is_outer, [](const auto& place) -> const Path& { return place.path; });
}

}  // namespace sherd::stored
