#include "sherd/state_dict.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/state_paths.h"
#include "comm/errors.h"
#include "sherd/dtensor.h"
#include "sherd/sharded_tensor.h"

namespace sherd {
namespace {

std::string tensor_kind(const at::Tensor& tensor) {
  if (sharded::is_sharded_tensor(tensor)) return sharded::to_string(sharded::ShardedTensor(tensor));
  return "tensor " + to_string(tensor);
}

StateValue cloned(const StateValue& value);

std::vector<StateValue> cloned(const std::vector<StateValue>& values) {
  std::vector<StateValue> copies;
  copies.reserve(values.size());
  for (const StateValue& value : values) copies.push_back(cloned(value));
  return copies;
}

StateValue cloned(const StateValue& value) {
  if (const StateDict* dict = value.dict()) return dict->clone();
  if (const StateList* list = value.list()) return StateList(cloned(*list));
  if (const StateTuple* tuple = value.tuple()) return StateTuple{cloned(tuple->items)};
  return value;
}

[[noreturn]] void refuse_key(const StateDict& state, const StateKey& key) {
  constexpr size_t kShown = 20;
  std::string keys;
  size_t number = 0;
  for (const auto& [other, value] : state) {
    if (number++ == kShown) {
      keys += fmt::format(" and {} more", state.size() - kShown);
      break;
    }
    keys += (keys.empty() ? "" : ", ") + detail::quoted(other);
  }
  detail::throw_value_error(ErrorText("StateDict::at", "the dict has no such key")
                                .fact("key", detail::quoted(key))
                                .fact("keys", keys.empty() ? "none" : keys)
                                .help("state.find(key) where the key may be missing"));
}

}  // namespace

StateValue::StateValue(StateList list) : content_(std::make_shared<StateList>(std::move(list))) {}
StateValue::StateValue(StateTuple tuple) : content_(std::make_shared<StateTuple>(std::move(tuple))) {}
StateValue::StateValue(StateDict dict) : content_(std::make_shared<StateDict>(std::move(dict))) {}

std::optional<double> StateValue::number() const {
  if (const auto* real = std::get_if<double>(&content_)) return *real;
  if (const int64_t* whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

std::string StateValue::kind() const {
  struct Kind {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(int64_t) const { return "integer"; }
    std::string operator()(double) const { return "number"; }
    std::string operator()(const std::string&) const { return "text"; }
    std::string operator()(const StateBytes&) const { return "bytes"; }
    std::string operator()(const StateOpaque&) const { return "Python object"; }
    std::string operator()(const at::Tensor& tensor) const { return tensor_kind(tensor); }
    std::string operator()(const std::shared_ptr<Checkpointable>&) const { return "Checkpointable"; }
    std::string operator()(const std::shared_ptr<Stateful>&) const { return "Stateful"; }
    std::string operator()(const std::shared_ptr<StateList>&) const { return "list"; }
    std::string operator()(const std::shared_ptr<StateTuple>&) const { return "tuple"; }
    std::string operator()(const std::shared_ptr<StateDict>&) const { return "dict"; }
  };
  return std::visit(Kind(), content_);
}

StateDict::StateDict(std::initializer_list<Item> items) {
  for (const auto& [key, value] : items) (*this)[key] = value;
}

StateValue& StateDict::operator[](const StateKey& key) {
  const auto [place, is_new] = places_.try_emplace(key, items_.size());
  if (is_new) items_.emplace_back(key, StateValue());
  return items_[place->second].second;
}

const StateValue* StateDict::find(const StateKey& key) const {
  const auto place = places_.find(key);
  return place != places_.end() ? &items_[place->second].second : nullptr;
}

StateValue* StateDict::find(const StateKey& key) {
  return const_cast<StateValue*>(std::as_const(*this).find(key));  // NOLINT: the dict is not const here
}

const StateValue& StateDict::at(const StateKey& key) const {
  const StateValue* found = find(key);
  if (found == nullptr) refuse_key(*this, key);
  return *found;
}

StateValue& StateDict::at(const StateKey& key) {
  StateValue* found = find(key);
  if (found == nullptr) refuse_key(*this, key);
  return *found;
}

bool StateDict::erase(const StateKey& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return false;
  const size_t place = found->second;
  places_.erase(found);
  items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(place));
  for (size_t i = place; i < items_.size(); ++i) places_[items_[i].first] = i;
  return true;
}

StateDict StateDict::clone() const {
  StateDict copy;
  for (const auto& [key, value] : items_) copy[key] = cloned(value);
  return copy;
}

}  // namespace sherd
