#pragma once
// What a pickle says, as a graph of small nodes: nothing is called, looked up or run. A `.metadata` file holds millions
// of values, so that a node has 16 bytes and texts stay where they are in the input.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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
  bool flag = false;    // a boolean's value; bytes: a bytearray; a tuple: a torch.Size; an object: made by a call
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

/// Memory for `count` of them, not touched before it is used.
struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using RawArray = std::unique_ptr<T[], FreeMemory>;
template <class T>
RawArray<T> raw_array(size_t count) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  void* const memory = std::malloc(count * sizeof(T));
  if (memory == nullptr) throw std::bad_alloc();
  return RawArray<T>(static_cast<T*>(memory));
}

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
  bool called(const Node& object) const { return object.flag; }
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
  };
  /// Grows by doubling without moving anything: block b holds 64 << b containers.
  class Containers {
   public:
    Container& operator[](uint64_t index) { return at(index); }
    const Container& operator[](uint64_t index) const { return at(index); }
    size_t size() const { return size_; }
    void push_back(const Container& container) {
      const auto block = block_of(size_);
      if (block == blocks_.size()) blocks_.push_back(raw_array<Container>(size_t{64} << block));
      ++size_;
      at(size_ - 1) = container;
    }

   private:
    static size_t block_of(uint64_t index) { return static_cast<size_t>(std::bit_width(index / 64 + 1)) - 1; }
    Container& at(uint64_t index) const {
      const size_t block = block_of(index);
      return blocks_[block][index - 64 * ((uint64_t{1} << block) - 1)];
    }
    std::vector<RawArray<Container>> blocks_;
    size_t size_ = 0;
  };

  Containers containers_;
  std::vector<GlobalName> globals_;
  std::unordered_map<uint64_t, Extra> extras_;
  std::vector<RawArray<Node>> pages_;
  std::deque<std::string> texts_;  // those that stand in the input in another form
};

/// The graph of one pickle; it refers to `bytes`. Without cycles and no deeper than options.max_depth. Throws as
/// unpickle does.
PickleGraph read_pickle(std::span<const std::byte> bytes, const UnpickleOptions& options);

}  // namespace sherd::format
