#include <fmt/format.h>

#include <unordered_map>

#include "checkpoint/state_paths.h"
#include "comm/errors.h"

namespace sherd {
namespace {

using Visit = std::function<void(const StatePath&, const StateValue&)>;

// Lists of plain values are kept whole: a thousand numbers are one object of a checkpoint, not a thousand.
bool holds_tensors(const StateList& list) {
  for (const StateValue& item : list) {
    if (item.dict() != nullptr || item.tensor() != nullptr || item.stateful() != nullptr ||
        item.checkpointable() != nullptr) {
      return true;
    }
    if (item.list() != nullptr && holds_tensors(*item.list())) return true;
  }
  return false;
}

void traverse_value(const StateValue& value, StatePath& path, const Visit& visit);

void traverse_dict(const StateDict& dict, StatePath& path, const Visit& visit) {
  for (const auto& [key, value] : dict) {
    path.push_back(key);
    traverse_value(value, path, visit);
    path.pop_back();
  }
}

void traverse_value(const StateValue& value, StatePath& path, const Visit& visit) {
  if (const Stateful* stateful = value.stateful()) {
    traverse_value(stateful->state_dict(), path, visit);
  } else if (const StateDict* dict = value.dict(); dict != nullptr && !dict->empty()) {
    traverse_dict(*dict, path, visit);
  } else if (const StateList* list = value.list(); list != nullptr && holds_tensors(*list)) {
    for (size_t i = 0; i < list->size(); ++i) {
      path.emplace_back(static_cast<int64_t>(i));
      traverse_value((*list)[i], path, visit);
      path.pop_back();
    }
  } else {
    visit(path, value);
  }
}

}  // namespace

void traverse_state_dict(const StateDict& state, const Visit& visit) {
  StatePath path;
  traverse_dict(state, path, visit);
}

std::vector<FlatLeaf> flatten_state_dict(const StateDict& state) {
  std::vector<FlatLeaf> leaves;
  std::unordered_map<std::string, size_t> places;
  traverse_state_dict(state, [&](const StatePath& path, const StateValue& value) {
    std::string name = to_string(path);
    const auto [place, is_new] = places.try_emplace(name, leaves.size());
    if (!is_new) {
      detail::throw_value_error(ErrorText("flatten_state_dict", "two values have one name")
                                    .fact("name", name)
                                    .fact("path", detail::quoted(leaves[place->second].path))
                                    .fact("other path", detail::quoted(path))
                                    .help("keys without dots, or others"));
    }
    leaves.push_back({std::move(name), path, value});
  });
  return leaves;
}

}  // namespace sherd
