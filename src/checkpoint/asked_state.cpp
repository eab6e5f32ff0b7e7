#include "checkpoint/asked_state.h"

#include <algorithm>

namespace sherd::detail {
namespace {

bool has_stateful(const StateDict& dict);

bool has_stateful(const StateValue& value) {
  if (value.stateful() != nullptr) return true;
  if (const StateDict* dict = value.dict()) return has_stateful(*dict);
  const StateList* list = value.list();
  return list != nullptr &&
         std::any_of(list->begin(), list->end(), [](const StateValue& item) { return has_stateful(item); });
}

bool has_stateful(const StateDict& dict) {
  return std::any_of(dict.begin(), dict.end(), [](const auto& item) { return has_stateful(item.second); });
}

StateDict asked(const StateDict& dict);

StateValue asked(const StateValue& value) {
  if (!has_stateful(value)) return value;
  if (const Stateful* stateful = value.stateful()) return asked(stateful->state_dict());
  if (const StateDict* dict = value.dict()) return asked(*dict);
  StateList list;
  for (const StateValue& item : *value.list()) list.push_back(asked(item));
  return list;
}

StateDict asked(const StateDict& dict) {
  StateDict all;
  for (const auto& [key, value] : dict) all[key] = asked(value);
  return all;
}

}  // namespace

std::optional<StateDict> asked_state(const StateDict& state) {
  if (!has_stateful(state)) return std::nullopt;
  return asked(state);
}

}  // namespace sherd::detail
