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
    for (const auto& [key, child] : children) {
      dict.items.emplace_back(std::visit([](const auto& part) { return Value(part); }, key), child->value());
    }
    return dict;
  }
};

class Planner {
 public:
  explicit Planner(const std::string& operation) : operation_(operation) {}

  void add(const ChosenTensor& tensor) {
    format::TensorRef ref;
    ref.dtype = tensor.content->dtype;
    ref.sizes = tensor.content->size;
    ref.strides = row_major(ref.sizes);
    ref.requires_grad = tensor.content->requires_grad;
    ref.storage = add_storage(tensor.bytes(), tensor.whole());
    ref.storage_bytes = tensor.bytes();
    set(tensor.name, tensor.path, ref);
  }

  void add(const ChosenObject& object) {
    const format::MemorySource source(std::as_bytes(std::span(object.archive)));
    const format::Saved saved = format::read_saved(source, object.name);
    std::unordered_map<std::string, std::string> keys;  // of its storages: there, here
    format::for_each_tensor(saved.value, [&](const format::TensorRef& tensor) {
      if (tensor.meta || keys.contains(tensor.storage)) return;
      std::string bytes = format::read_record(source, *saved.archive.find("data/" + tensor.storage), object.name);
      bytes.resize(static_cast<size_t>(tensor.storage_bytes));
      const auto size = static_cast<int64_t>(bytes.size());
      keys[tensor.storage] = add_storage(size, std::move(bytes));
    });
    set(object.name, object.path, format::changed(saved.value, [&](const Value& value) -> std::optional<Value> {
          const auto* tensor = value.as<format::TensorRef>();
          if (tensor == nullptr || tensor->meta) return std::nullopt;
          format::TensorRef here = *tensor;
          here.storage = keys.at(tensor->storage);
          return here;
        }));
  }

  /// Makes the containers in this order, whatever order they are filled in.
  void reserve(const std::vector<PathPart>& path) {
    Node* node = &root_;
    for (const PathPart& part : path) node = &node->child(part);
  }
  /// A dict, where there is something at the path.
  void set_dict(const std::vector<PathPart>& path) {
    Node* node = &root_;
    for (const PathPart& part : path) {
      const auto found = node->by_key.find(part);
      if (found == node->by_key.end()) return;
      node = found->second;
    }
    node->is_dict = true;
  }

  FilePlan plan() {
    const auto layout = std::make_shared<format::ArchiveLayout>(root_.value(), sizes_, /*digests=*/true);
    FilePlan plan;
    plan.name = Draft::kItself;
    std::vector<uint32_t> known;  // CRCs of the objects' storages, which are the first ones
    for (size_t place = 0; place <= data_.size(); ++place) {
      const bool at_end = place == data_.size();
      if (place == known.size()) {
        plan.add(layout->text(place, known));
      } else {
        plan.add(LateText{layout->text_length(place), at_end ? data_.size() - known.size() : 1,
                          [layout, place, known](std::span<const uint32_t> crcs) {
                            std::vector<uint32_t> all = known;
                            all.insert(all.end(), crcs.begin(), crcs.end());
                            return layout->text(place, all);
                          }});
      }
      if (at_end) break;
      if (const auto* bytes = std::get_if<std::string>(&data_[place])) {
        known.push_back(format::crc32(std::as_bytes(std::span(*bytes))));
      }
      plan.add(std::move(data_[place]));
    }
    plan.add(DigestText{layout->digests_length(),
                        [layout, known](std::span<const uint32_t> crcs, std::span<const format::Digest> blocks) {
                          std::vector<uint32_t> all = known;
                          all.insert(all.end(), crcs.begin(), crcs.end());
                          return layout->digests_text(all, blocks);
                        }});
    return plan;
  }

 private:
  std::string add_storage(int64_t bytes, Piece data) {
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
  std::vector<Piece> data_;  // per storage
};

}  // namespace

FilePlan plan_torch_save(const Chosen& chosen, const std::string& operation) {
  Planner planner(operation);
  std::map<size_t, const std::vector<PathPart>*> paths;  // by order
  for (const ChosenObject& object : chosen.objects) paths[object.order] = &object.path;
  for (const ChosenTensor& tensor : chosen.tensors) paths[tensor.order] = &tensor.path;
  for (const auto& [order, path] : paths) planner.reserve(*path);
  for (const auto& path : chosen.dicts) planner.set_dict(path);
  // Objects first: the CRCs of their storages are known.
  for (const ChosenObject& object : chosen.objects) planner.add(object);
  for (const ChosenTensor& tensor : chosen.tensors) planner.add(tensor);
  return planner.plan();
}

}  // namespace sherd::stored
