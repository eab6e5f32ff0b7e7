#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "format/saved.h"
#include "sherd/error.h"
#include "sherd/storage.h"
#include "stored/chosen.h"
#include "stored/copy_elements.h"
#include "stored/shared_memory_plan.h"

namespace sherd::stored {
namespace {

using format::PathPart;
using format::Value;

// The state as a tree, so that a container is seen whole before it is made.
struct Node {
  std::vector<std::pair<PathPart, std::unique_ptr<Node>>> children;
  std::map<PathPart, Node*> by_key;
  std::optional<Value> leaf;
  bool is_dict = false;  // though it may have the keys of a list
  bool ordered = false;
  Value beside = {};  // where it is

  Node& child(const PathPart& key) {
    Node*& place = by_key[key];
    if (place == nullptr) {
      children.emplace_back(key, std::make_unique<Node>());
      place = children.back().second.get();
    }
    return *place;
  }

  // 0, 1, 2 ... without a gap.
  bool is_list() const {
    return !is_dict && !children.empty() && std::all_of(children.begin(), children.end(), [this](const auto& item) {
      const auto* number = std::get_if<int64_t>(&item.first);
      return number != nullptr && *number >= 0 && *number < static_cast<int64_t>(children.size());
    });
  }

  Value value() const {
    if (leaf) return *leaf;
    if (is_list()) {
      format::List list(children.size());
      for (const auto& [key, child] : children) list[static_cast<size_t>(std::get<int64_t>(key))] = child->value();
      return list;
    }
    format::Dict dict;
    dict.ordered = ordered;
    if (beside.as<format::None>() == nullptr) dict.state = std::make_shared<Value>(beside);
    for (const auto& [key, child] : children) {
      dict.items.emplace_back(std::visit([](const auto& part) { return Value(part); }, key), child->value());
    }
    return dict;
  }
};

class Planner {
 public:
  explicit Planner(const std::string& operation) : operation_(operation) {}

  void add(const MemoryPlan& memory) {
    std::vector<Piece> pieces;
    for (const Elements& elements : memory.pieces) pieces.emplace_back(elements);
    const std::string key = add_storage(memory.bytes, std::move(pieces));
    for (const MemoryPlan::View& view : memory.views) {
      format::TensorRef ref;
      ref.dtype = view.tensor->content->dtype;
      ref.sizes = view.tensor->content->size;
      ref.strides = view.strides;
      ref.offset = view.offset;
      ref.requires_grad = view.tensor->content->requires_grad;
      ref.storage = key;
      ref.storage_bytes = memory.bytes;
      set(view.tensor->name, view.tensor->path, ref);
    }
  }

  void add(const ChosenObject& object) {
    const format::MemorySource source(std::as_bytes(std::span(object.archive)));
    const format::Saved saved = format::read_saved(source, object.name);
    std::unordered_map<std::string, std::string> keys;  // of its storages: there, here
    format::for_each_storage(saved.value, [&](const std::string& key, int64_t bytes) {
      std::string data = format::read_storage(source, saved.archive, key, bytes, object.name);
      const auto size = static_cast<int64_t>(data.size());
      std::vector<Piece> pieces;
      pieces.emplace_back(std::move(data));
      keys[key] = add_storage(size, std::move(pieces));
    });
    set(object.name, object.path,
        format::with_storages(saved.value, [&](const std::string& key) { return keys.at(key); }));
  }

  /// Makes the containers in this order, whatever order they are filled in.
  void reserve(const std::vector<PathPart>& path) {
    Node* node = &root_;
    for (const PathPart& part : path) node = &node->child(part);
  }
  /// A dict, where there is something at the path.
  void set_dict(const std::vector<PathPart>& path) {
    if (Node* node = find(path)) node->is_dict = true;
  }
  void set_ordered(const format::OrderedPlace& place) {
    Node* const node = find(place.path);
    if (node == nullptr) return;
    node->is_dict = true;
    node->ordered = true;
    // Its tensors are no entries: their elements do not come into this file.
    node->beside = kept_beside(place, [](const Value& value) { return !format::needs_storages(value); });
  }

  FilePlan plan() {
    const auto layout = std::make_shared<format::ArchiveLayout>(root_.value(), sizes_, /*digests=*/true);
    FilePlan plan;
    plan.name = Draft::kItself;
    std::vector<uint32_t> known;   // CRCs of the objects' storages, which are the first ones
    std::vector<Lengths> lengths;  // of the others' pieces
    for (size_t place = 0; place <= data_.size(); ++place) {
      const bool at_end = place == data_.size();
      if (place == known.size()) {
        plan.add(layout->text(place, known));
      } else {
        const std::vector<Lengths> wanted = at_end ? lengths : std::vector<Lengths>{lengths.back()};
        plan.add(LateText{layout->text_length(place), count_of(wanted),
                          [layout, place, known, wanted](std::span<const uint32_t> crcs) {
                            return layout->text(place, crcs_of(known, wanted, crcs));
                          }});
      }
      if (at_end) break;
      if (!data_[place].empty() && std::holds_alternative<std::string>(data_[place].front())) {
        known.push_back(format::crc32(std::as_bytes(std::span(std::get<std::string>(data_[place].front())))));
      } else {
        Lengths& each = lengths.emplace_back();
        for (const Piece& piece : data_[place]) each.push_back(length_of(piece));
      }
      for (Piece& piece : data_[place]) plan.add(std::move(piece));
    }
    plan.add(DigestText{layout->digests_length(), [layout, known, lengths](std::span<const uint32_t> crcs,
                                                                           std::span<const format::Digest> blocks) {
                          return layout->digests_text(crcs_of(known, lengths, crcs), blocks);
                        }});
    return plan;
  }

 private:
  using Lengths = std::vector<int64_t>;

  static size_t count_of(const std::vector<Lengths>& storages) {
    size_t count = 0;
    for (const Lengths& storage : storages) count += storage.size();
    return count;
  }
  // Those that are known, then one for each of the storages, from those of their pieces.
  static std::vector<uint32_t> crcs_of(const std::vector<uint32_t>& known, const std::vector<Lengths>& storages,
                                       std::span<const uint32_t> pieces) {
    std::vector<uint32_t> all = known;
    size_t next = 0;
    for (const Lengths& storage : storages) {
      uint32_t crc = 0;
      for (const int64_t length : storage) crc = format::crc32_of_both(crc, pieces[next++], length);
      all.push_back(crc);
    }
    return all;
  }

  Node* find(const std::vector<PathPart>& path) {
    Node* node = &root_;
    for (const PathPart& part : path) {
      const auto found = node->by_key.find(part);
      if (found == node->by_key.end()) return nullptr;
      node = found->second;
    }
    return node;
  }

  std::string add_storage(int64_t bytes, std::vector<Piece> data) {
    sizes_.push_back({fmt::to_string(sizes_.size()), bytes});
    data_.push_back(std::move(data));
    return sizes_.back().key;
  }

  void set(const std::string& name, const std::vector<PathPart>& path, Value value) {
    Node* node = &root_;
    for (const PathPart& part : path) {
      if (node->leaf) refuse(name);
      node = &node->child(part);
    }
    if (node == &root_ || node->leaf || !node->children.empty()) refuse(name);
    node->leaf = std::move(value);
  }

  [[noreturn]] void refuse(const std::string& name) const {
    throw std::invalid_argument(ErrorText(operation_, "two entries claim one place in the state")
                                    .fact("entry", name)
                                    .help("rename one of them"));
  }

  const std::string& operation_;
  Node root_;
  std::vector<format::StorageSize> sizes_;
  std::vector<std::vector<Piece>> data_;  // per storage
};

}  // namespace

FilePlan plan_torch_save(const Chosen& chosen, const std::string& operation) {
  Planner planner(operation);
  std::map<size_t, const std::vector<PathPart>*> paths;  // by order
  for (const ChosenObject& object : chosen.objects) paths[object.order] = &object.path;
  for (const ChosenTensor& tensor : chosen.tensors) paths[tensor.order] = &tensor.path;
  for (const auto& [order, path] : paths) planner.reserve(*path);
  for (const auto& path : chosen.dicts) planner.set_dict(path);
  for (const auto& place : chosen.ordered) planner.set_ordered(place);
  // Objects first: the CRCs of their storages are known.
  for (const ChosenObject& object : chosen.objects) planner.add(object);
  for (const MemoryPlan& memory : plan_memories(chosen.tensors)) planner.add(memory);
  return planner.plan();
}

}  // namespace sherd::stored
