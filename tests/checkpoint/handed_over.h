#pragma once
// States between a test's Python and C++ halves: files of torch.save.

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/torch.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "sherd/state_dict.h"

namespace sherd::test {

inline c10::IValue to_ivalue(const StateValue& value) {
  if (value.is_none()) return {};
  if (value.boolean() != nullptr) return *value.boolean();
  if (value.integer() != nullptr) return *value.integer();
  if (value.number()) return *value.number();
  if (value.text() != nullptr) return *value.text();
  if (value.tensor() != nullptr) return *value.tensor();
  if (value.tuple() != nullptr) {
    std::vector<c10::IValue> items;
    for (const StateValue& item : value.tuple()->items) items.push_back(to_ivalue(item));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  if (value.list() != nullptr) {
    c10::impl::GenericList items(c10::AnyType::get());
    for (const StateValue& item : *value.list()) items.push_back(to_ivalue(item));
    return items;
  }
  if (value.dict() == nullptr) throw std::invalid_argument("handed_over: a " + value.kind());
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, item] : *value.dict()) dict.insert(std::get<std::string>(key), to_ivalue(item));
  return dict;
}

inline StateValue from_ivalue(const c10::IValue& value) {
  if (value.isNone()) return {};
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isTensor()) return value.toTensor();
  if (value.isTuple()) {
    StateTuple tuple;
    for (const c10::IValue& item : value.toTupleRef().elements()) tuple.items.push_back(from_ivalue(item));
    return tuple;
  }
  if (value.isList()) {
    StateList list;
    for (const c10::IValue& item : value.toListRef()) list.push_back(from_ivalue(item));
    return list;
  }
  StateDict dict;
  for (const auto& item : value.toGenericDict()) {
    const StateKey key = item.key().isInt() ? StateKey(item.key().toInt()) : StateKey(item.key().toStringRef());
    dict[key] = from_ivalue(item.value());
  }
  return dict;
}

inline StateDict read_state(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return *from_ivalue(torch::jit::pickle_load(bytes)).dict();
}

inline void write_state(const std::string& path, const StateDict& state) {
  const std::vector<char> bytes = torch::jit::pickle_save(to_ivalue(state));
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace sherd::test
