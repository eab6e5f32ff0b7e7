#include "checkpoint/numbered_dicts.h"

#include <algorithm>

namespace sherd::detail {
namespace {

using Path = std::vector<format::PathPart>;

class Finder {
 public:
  std::vector<Path> found;

  void go_into(const StateDict& dict) {
    const auto is_numbered = [](const auto& item) { return std::holds_alternative<int64_t>(item.first); };
    // The state itself is a dict anyway.
    if (!path_.empty() && std::any_of(dict.begin(), dict.end(), is_numbered)) found.push_back(path_);
    for (const auto& [key, value] : dict) go(key, value);
  }

 private:
  void go(const StateKey& key, const StateValue& value) {
    path_.push_back(key);
    if (const StateDict* dict = value.dict()) go_into(*dict);
    if (const StateList* list = value.list()) {
      for (size_t i = 0; i < list->size(); ++i) go(static_cast<int64_t>(i), (*list)[i]);
    }
    path_.pop_back();
  }

  Path path_;
};

}  // namespace

std::vector<Path> numbered_dicts(const StateDict& state) {
  Finder finder;
  finder.go_into(state);
  return std::move(finder.found);
}

void restore_dicts(const std::vector<Path>& dicts, StateDict& state) {
  for (auto path = dicts.rbegin(); path != dicts.rend(); ++path) {  // inner ones first
    const StatePath place(path->begin(), path->end());
    const StateValue* found = place.empty() ? nullptr : get_element(state, place);
    if (found == nullptr || found->list() == nullptr) continue;
    StateDict dict;
    for (size_t i = 0; i < found->list()->size(); ++i) dict[static_cast<int64_t>(i)] = (*found->list())[i];
    set_element(state, place, std::move(dict));
  }
}

}  // namespace sherd::detail
