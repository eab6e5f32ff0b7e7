#pragma once
// What a checkpoint holds, as a value: nested dicts, lists and tuples of tensors, numbers and texts, like Python's
// state dicts. Tensors of every kind go in by reference: plain ones, DTensors, ShardedTensors, LocalShardsWrappers.
//
//   sherd::StateDict state{{"model", sherd::get_model_state_dict(*model)}, {"step", 1000}, {"tags",
//   sherd::StateList{"a", "b"}}};

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "sherd/checkpointable.h"
#include "sherd/group.h"

namespace sherd {

class StateDict;
class StateValue;

/// A dict's key. Python's other kinds of keys do not occur in state dicts.
using StateKey = std::variant<std::string, int64_t>;
/// A way through a state: keys of dicts and, as numbers, places in lists.
using StatePath = std::vector<StateKey>;

using StateList = std::vector<StateValue>;
struct StateTuple {
  std::vector<StateValue> items;
};
struct StateBytes {
  std::string data;
};
/// A Python object that C++ has no value for: the bytes that torch.save made of it, kept and written back.
struct StateOpaque {
  std::string archive;
};

/// Something with a state of its own: saved as what state_dict() returns, and given back by load_state_dict().
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
};

class StateValue {
 public:
  using Content = std::variant<std::monostate, bool, int64_t, double, std::string, StateBytes, StateOpaque, at::Tensor,
                               std::shared_ptr<Checkpointable>, std::shared_ptr<Stateful>, std::shared_ptr<StateList>,
                               std::shared_ptr<StateTuple>, std::shared_ptr<StateDict>>;

  /// None.
  StateValue() = default;
  StateValue(bool value) : content_(value) {}
  StateValue(int value) : content_(int64_t{value}) {}
  StateValue(int64_t value) : content_(value) {}
  StateValue(double value) : content_(value) {}
  StateValue(const char* text) : content_(std::string(text)) {}
  StateValue(std::string text) : content_(std::move(text)) {}
  StateValue(StateBytes bytes) : content_(std::move(bytes)) {}
  StateValue(StateOpaque object) : content_(std::move(object)) {}
  StateValue(at::Tensor tensor) : content_(std::move(tensor)) {}
  /// A tensor-like of a program's own.
  StateValue(std::shared_ptr<Checkpointable> tensor) : content_(std::move(tensor)) {}
  template <std::derived_from<Checkpointable> T>
  StateValue(std::shared_ptr<T> tensor) : content_(std::shared_ptr<Checkpointable>(std::move(tensor))) {}
  StateValue(std::shared_ptr<Stateful> stateful) : content_(std::move(stateful)) {}
  template <std::derived_from<Stateful> T>
  StateValue(std::shared_ptr<T> stateful) : content_(std::shared_ptr<Stateful>(std::move(stateful))) {}
  StateValue(StateList list);
  StateValue(StateTuple tuple);
  StateValue(StateDict dict);
  /// A pointer would pass for a bool.
  template <class T>
  StateValue(const T*) = delete;

  // The content where it is of that kind, else null. Containers are shared by copies of the value; StateDict::clone
  // makes others.
  bool is_none() const { return std::holds_alternative<std::monostate>(content_); }
  const at::Tensor* tensor() const { return std::get_if<at::Tensor>(&content_); }
  const std::string* text() const { return std::get_if<std::string>(&content_); }
  const bool* boolean() const { return std::get_if<bool>(&content_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&content_); }
  /// Integers are numbers, too.
  std::optional<double> number() const;
  StateList* list() const { return held<StateList>(); }
  StateTuple* tuple() const { return held<StateTuple>(); }
  StateDict* dict() const { return held<StateDict>(); }
  Stateful* stateful() const { return held<Stateful>(); }
  Checkpointable* checkpointable() const { return held<Checkpointable>(); }
  const Content& content() const { return content_; }

  /// "dict", "tensor f32[2, 3]": for errors.
  std::string kind() const;

 private:
  template <class T>
  T* held() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&content_);
    return pointer != nullptr ? pointer->get() : nullptr;
  }
  Content content_;
};

/// Keeps the order in which keys came. References to values stay good until something is erased.
class StateDict {
 public:
  using Item = std::pair<StateKey, StateValue>;

  StateDict() = default;
  StateDict(std::initializer_list<Item> items);

  /// Makes a None where there is no such key.
  StateValue& operator[](const StateKey& key);
  /// Throws c10::ValueError naming the key and those that there are.
  const StateValue& at(const StateKey& key) const;
  StateValue& at(const StateKey& key);
  StateValue* find(const StateKey& key);
  const StateValue* find(const StateKey& key) const;
  bool contains(const StateKey& key) const { return find(key) != nullptr; }
  bool erase(const StateKey& key);
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

  /// Containers of its own; tensors are shared.
  StateDict clone() const;

 private:
  std::deque<Item> items_;
  std::unordered_map<StateKey, size_t> places_;
};

/// Calls `visit` for every leaf, in order. Dicts are descended into; a list is where it holds a dict, a tensor or a
/// Stateful, however deep, else it is a leaf itself; tuples are leaves, like everything else. Empty dicts and lists are
/// leaves. A Stateful is a dict: what its state_dict() says.
void traverse_state_dict(const StateDict& state, const std::function<void(const StatePath&, const StateValue&)>& visit);

/// A leaf by its name in a checkpoint: the parts of its path joined by dots.
struct FlatLeaf {
  std::string name;
  StatePath path;
  StateValue value;
};
/// Throws c10::ValueError where two leaves have one name, with both paths.
std::vector<FlatLeaf> flatten_state_dict(const StateDict& state);
/// The inverse. A new container is a list where its keys are the numbers 0, 1, 2 ... without a gap, else a dict. In
/// `into` the containers that are there keep their kinds, so that a number may be a dict's key; Statefuls are given
/// their new state at the end, inner ones first. Throws c10::ValueError where a path goes through a leaf, of `leaves`
/// or of `into`, and before anything is changed where it is one of `leaves`.
void unflatten_state_dict(const std::vector<FlatLeaf>& leaves, StateDict& into);
StateDict unflatten_state_dict(const std::vector<FlatLeaf>& leaves);

/// Null where the path leads nowhere.
const StateValue* get_element(const StateDict& state, const StatePath& path);
/// Makes dicts for texts and lists for numbers on the way, lists padded with None. Throws c10::ValueError where the
/// path goes through something that is neither, or a Stateful, and for a place below 0 or 2^24 and more beyond a list's
/// end.
void set_element(StateDict& state, const StatePath& path, StateValue value);

/// "model.layers.0.weight".
std::string to_string(const StatePath& path);

/// The state with ShardedTensors whose shards are ShardedTensors themselves, to any depth, as flat ones of the same
/// memory, held by the ranks of the group that have a state with that name. save() needs no such thing; it is for who
/// looks at shards. Statefuls become dicts. Every rank of the group (the current world where there is none) calls it,
/// for two small exchanges; throws c10::ValueError on all of them where the shards of a tensor do not tile it.
StateDict flatten_sharded_tensors(const StateDict& state, const std::optional<Group>& group = {});

}  // namespace sherd
