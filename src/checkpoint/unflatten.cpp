#include <algorithm>
#include <memory>
#include <unordered_map>

#include "checkpoint/state_paths.h"
#include "comm/errors.h"

namespace sherd {
namespace {

constexpr const char* kOperation = "unflatten_state_dict";

// The leaves as a tree, so that a container is seen whole before it is made.
struct Node {
  const Node* parent = nullptr;
  StateKey key = {};
  std::optional<StateValue> leaf;
  std::vector<std::pair<StateKey, std::unique_ptr<Node>>> children;
  std::unordered_map<StateKey, Node*> by_key;

  Node& child(const StateKey& name) {
    Node*& place = by_key[name];
    if (place == nullptr) {
      children.emplace_back(name, std::make_unique<Node>());
      place = children.back().second.get();
      place->parent = this;
      place->key = name;
    }
    return *place;
  }

  // Not kept: deep states would have as many as parts of them.
  StatePath path() const {
    StatePath keys;
    for (const Node* at = this; at->parent != nullptr; at = at->parent) keys.push_back(at->key);
    std::reverse(keys.begin(), keys.end());
    return keys;
  }

  // 0, 1, 2 ... without a gap.
  bool is_list() const {
    return std::all_of(children.begin(), children.end(), [this](const auto& item) {
      const auto* number = std::get_if<int64_t>(&item.first);
      return number != nullptr && *number >= 0 && *number < static_cast<int64_t>(children.size());
    });
  }
};

[[noreturn]] void refuse_way(const StatePath& path, const StateValue& there) {
  detail::throw_value_error(ErrorText(kOperation, "a path goes through a value that holds nothing")
                                .fact("value", detail::quoted(path))
                                .fact("it is", there.kind())
                                .help("leaves of one state, as flatten_state_dict gives them"));
}

void add_leaf(Node& root, const FlatLeaf& leaf) {
  Node* at = &root;
  for (const StateKey& key : leaf.path) {
    if (at->leaf) refuse_way(at->path(), *at->leaf);
    at = &at->child(key);
  }
  if (at == &root) {
    detail::throw_value_error(ErrorText(kOperation, "a leaf has no path")
                                  .fact("name", leaf.name)
                                  .help("a path of at least one key: {\"model\", \"weight\"}"));
  }
  if (!at->children.empty()) refuse_way(at->path(), leaf.value);
  if (at->leaf) {
    detail::throw_value_error(ErrorText(kOperation, "two leaves have one path")
                                  .fact("path", detail::quoted(leaf.path))
                                  .help("leaves of one state, as flatten_state_dict gives them"));
  }
  at->leaf = leaf.value;
}

// Fills what is there, and remembers what each Stateful is to be told.
class Filler {
 public:
  void fill(const Node& node, StateDict& dict) {
    for (const auto& [key, child] : node.children) fill(*child, dict[key]);
  }

  void finish() {
    for (const auto& [stateful, state] : pending_) stateful->load_state_dict(*state);
  }

 private:
  void fill(const Node& node, StateValue& value) {
    if (const auto* stateful = std::get_if<std::shared_ptr<Stateful>>(&value.content())) {
      fill_stateful(node, *stateful);
    } else if (node.leaf) {
      value = *node.leaf;
    } else {
      if (value.is_none()) value = node.is_list() ? StateValue(StateList()) : StateValue(StateDict());
      fill_container(node, value);
    }
  }

  void fill_container(const Node& node, const StateValue& value) {
    if (StateDict* dict = value.dict()) return fill(node, *dict);
    StateList* list = value.list();
    if (list == nullptr) refuse_way(node.path(), value);
    for (const auto& [key, child] : node.children) fill(*child, detail::list_item(*list, key, child->path()));
  }

  // A state of no leaf has an empty dict for one.
  void fill_stateful(const Node& node, const std::shared_ptr<Stateful>& stateful) {
    const auto state = std::make_shared<StateDict>(stateful->state_dict().clone());
    if (!node.leaf) {
      fill(node, *state);
    } else if (const StateDict* empty = node.leaf->dict(); empty == nullptr || !empty->empty()) {
      detail::throw_value_error(ErrorText(kOperation, "the state of a Stateful is a dict")
                                    .fact("Stateful", detail::quoted(node.path()))
                                    .fact("leaf", node.leaf->kind())
                                    .help("leaves of one state, as flatten_state_dict gives them"));
    }
    pending_.emplace_back(stateful, state);
  }

  std::vector<std::pair<std::shared_ptr<Stateful>, std::shared_ptr<StateDict>>> pending_;
};

}  // namespace

void unflatten_state_dict(const std::vector<FlatLeaf>& leaves, StateDict& into) {
  Node root;
  for (const FlatLeaf& leaf : leaves) add_leaf(root, leaf);
  Filler filler;
  filler.fill(root, into);
  filler.finish();
}

StateDict unflatten_state_dict(const std::vector<FlatLeaf>& leaves) {
  StateDict state;
  unflatten_state_dict(leaves, state);
  return state;
}

}  // namespace sherd
