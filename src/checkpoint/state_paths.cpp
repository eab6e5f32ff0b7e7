#include "checkpoint/state_paths.h"

#include <fmt/format.h>

#include "comm/errors.h"

namespace sherd {
namespace {

constexpr const char* kOperation = "set_element";
// A wrong number must not take the machine's memory.
constexpr int64_t kFurthest = int64_t{1} << 24;

[[noreturn]] void refuse_path(const std::string& problem, const StatePath& path, size_t length,
                              const StateValue& there) {
  const StatePath way(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length));
  detail::throw_value_error(ErrorText(kOperation, problem)
                                .fact("path", detail::quoted(path))
                                .fact(way.empty() ? "state" : detail::quoted(way), there.kind())
                                .help("a path through dicts and lists"));
}

}  // namespace

std::string detail::quoted(const StateKey& key) {
  if (const auto* number = std::get_if<int64_t>(&key)) return fmt::format("{}", *number);
  return "\"" + std::get<std::string>(key) + "\"";
}

std::string detail::quoted(const StatePath& path) {
  std::string text;
  for (const StateKey& key : path) text += "[" + quoted(key) + "]";
  return text;
}

std::string to_string(const StatePath& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    if (i > 0) text += ".";
    if (const auto* number = std::get_if<int64_t>(&path[i])) {
      text += fmt::format("{}", *number);
    } else {
      text += std::get<std::string>(path[i]);
    }
  }
  return text;
}

StateValue& detail::list_item(StateList& list, const StateKey& place, const StatePath& path) {
  const auto* number = std::get_if<int64_t>(&place);
  const auto size = static_cast<int64_t>(list.size());
  if (number == nullptr || *number < 0 || *number >= size + kFurthest) {
    throw_value_error(ErrorText(kOperation, "a list has no such place")
                          .fact("path", quoted(path))
                          .fact("place", quoted(place))
                          .fact("items", fmt::format("{}", size))
                          .help("a number from 0 to the list's size"));
  }
  if (*number >= size) list.resize(static_cast<size_t>(*number) + 1);
  return list[static_cast<size_t>(*number)];
}

const StateValue* get_element(const StateDict& state, const StatePath& path) {
  const StateDict* dict = &state;
  const StateList* list = nullptr;
  const StateValue* value = nullptr;
  for (const StateKey& key : path) {
    if (dict != nullptr) {
      value = dict->find(key);
    } else if (list != nullptr) {
      const auto* number = std::get_if<int64_t>(&key);
      const bool inside = number != nullptr && *number >= 0 && *number < static_cast<int64_t>(list->size());
      value = inside ? &(*list)[static_cast<size_t>(*number)] : nullptr;
    } else {
      return nullptr;
    }
    if (value == nullptr) return nullptr;
    dict = value->dict();
    list = value->list();
  }
  return value;
}

void set_element(StateDict& state, const StatePath& path, StateValue value) {
  if (path.empty()) {
    detail::throw_value_error(
        ErrorText(kOperation, "the path is empty").help("a path of at least one key: {\"model\", \"weight\"}"));
  }
  StateValue* at = &state[path.front()];
  for (size_t i = 1; i < path.size(); ++i) {
    if (at->is_none()) {
      *at = std::holds_alternative<int64_t>(path[i]) ? StateValue(StateList()) : StateValue(StateDict());
    }
    if (StateDict* dict = at->dict()) {
      at = &(*dict)[path[i]];
    } else if (StateList* list = at->list()) {
      at = &detail::list_item(*list, path[i], path);
    } else {
      refuse_path("the path goes through something that holds nothing", path, i, *at);
    }
  }
  *at = std::move(value);
}

}  // namespace sherd
