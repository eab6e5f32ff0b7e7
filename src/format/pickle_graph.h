#pragma once
// What a pickle says, as a graph of small nodes: nothing is called, looked up or run. A `.metadata` file holds millions
// of values, so that a node has 16 bytes and texts stay where they are in the input.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/pickle.h"

namespace sherd::format {

struct Node {
  // clang-format off
  enum class Kind : uint8_t {
    unset, none, boolean, integer, big, real, text, bytes, global,
    list, tuple, set, frozenset, dict, object, persistent,  // containers
  };
  // clang-format on
  Kind kind = Kind::unset;
  bool flag = false;    // a boolean's value; bytes: a bytearray; a tuple: a torch.Size
  uint32_t length = 0;  // of text, bytes and big
  union {
    int64_t integer = 0;
    double real;
    const char* data;
    uint64_t index;  // of a global or a container
  };

  bool is(Kind other) const { return kind == other; }
  bool is_container() const { return kind >= Kind::list; }
  std::string_view text() const { return {data, length}; }
};

class PickleGraph {
 public:
  struct GlobalName {
    std::string_view module;
    std::string_view name;
    bool is(std::string_view other_module, std::string_view other_name) const {
      return name == other_name && module == other_module;
    }
  };
  /// What an object has besides its class, arguments and state: rarely anything.
  struct Extra {
    Node keywords;  // a dict
    Node appended;  // a list
    Node items;     // a dict
  };

  /// The items of a list, tuple or set; the keys and values of a dict by turns; the id of a persistent one.
  std::span<const Node> items(const Node& container) const {
    const Container& found = containers_[container.index];
    return {found.items, found.count};
  }
  const GlobalName& global(const Node& node) const { return globals_[node.index]; }
  std::span<const GlobalName> globals() const { return globals_; }

  const GlobalName& type(const Node& object) const { return globals_[type_number(object)]; }
  size_t type_number(const Node& object) const { return containers_[object.index].items[0].index; }  // in globals()
  const Node& arguments(const Node& object) const { return containers_[object.index].items[1]; }     // a tuple
  const Node* state(const Node& object) const {
    const Container& found = containers_[object.index];
    return found.count > 2 ? found.items + 2 : nullptr;
  }
  bool called(const Node& object) const { return containers_[object.index].called; }
  const Extra* extra(const Node& object) const {
    const auto found = extras_.find(object.index);
    return found != extras_.end() ? &found->second : nullptr;
  }

  Node root;
  size_t container_count() const { return containers_.size(); }

 private:
  friend class PickleMachine;

  struct Container {
    Node* items = nullptr;
    uint32_t count = 0;
    uint32_t capacity = 0;
    bool called = false;
  };

  std::vector<Container> containers_;
  std::vector<GlobalName> globals_;
  std::unordered_map<uint64_t, Extra> extras_;
  std::vector<std::unique_ptr<Node[]>> pages_;
  std::deque<std::string> texts_;  // those that stand in the input in another form
};

/// The graph of one pickle; it refers to `bytes`. Without cycles and no deeper than options.max_depth. Throws as
/// unpickle does.
PickleGraph read_pickle(std::span<const std::byte> bytes, const UnpickleOptions& options);

}  // namespace sherd::format
