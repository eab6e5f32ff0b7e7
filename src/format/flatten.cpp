#include "format/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "sherd/error.h"

namespace sherd::format {
namespace {

// What names and paths may take: a value in which containers stand many times unfolds into much more than its pickle.
constexpr size_t kMostBytes = size_t{1} << 30;

class Flattener {
 public:
  explicit Flattener(const FlattenOptions& options) : options_(options) {}

  Flattened flat;

  void go(const Value& value, const std::string& name,
          const std::vector<PathPart>& path) {  // NOLINT(misc-no-recursion)
    if (const auto* dict = value.as<Dict>(); dict != nullptr && !dict->items.empty()) {
      if (is_counted(*dict)) flat.dicts.push_back(path);
      const bool is_script = options_.script && has_training(*dict);
      for (const auto& [key, item] : dict->items) {
        if (is_script && item.as<Dict>() == nullptr && item.as<TensorRef>() == nullptr) continue;
        part(item, key, name, path);
      }
    } else if (const auto* list = value.as<List>(); list != nullptr && holds_tensors(value)) {
      for (size_t i = 0; i < list->size(); ++i) part((*list)[i], static_cast<int64_t>(i), name, path);
    } else if (const Dict* module = module_of(value)) {
      go_into_module(*module, name, path);
    } else if (path.empty()) {
      add(value, "value", {"value"});
    } else {
      add(value, name, path);
    }
  }

 private:
  void part(const Value& value, const Value& key, const std::string& name, const std::vector<PathPart>& path) {
    const auto* text = key.as<std::string>();
    const auto* number = key.as<int64_t>();
    const PathPart last = number != nullptr ? PathPart(*number)
                          : text != nullptr ? PathPart(*text)
                                            : PathPart(to_string(key));
    bytes_ += 64 + name.size() + path.size() * sizeof(PathPart);
    if (bytes_ > kMostBytes) {
      throw std::invalid_argument(ErrorText("read_saved", "the value unfolds into too many parts")
                                      .fact("in", options_.source)
                                      .fact("found so far", fmt::format("{} values", flat.leaves.size())));
    }
    const std::string last_name = number != nullptr ? fmt::to_string(*number) : std::get<std::string>(last);
    std::vector<PathPart> longer = path;
    longer.push_back(last);
    go(value, path.empty() ? last_name : name + "." + last_name, longer);
  }

  void add(const Value& value, std::string name, std::vector<PathPart> path) {
    if (!names_.insert(name).second) {
      throw std::invalid_argument(ErrorText("read_saved", "two values have one name")
                                      .fact("in", options_.source)
                                      .fact("name", name)
                                      .help("keys whose parts, joined by dots, differ"));
    }
    flat.leaves.push_back({std::move(name), std::move(path), value});
  }

  // Whether the keys are 0, 1, 2 ... in any order: a dict has each of them once.
  static bool is_counted(const Dict& dict) {
    return std::all_of(dict.items.begin(), dict.items.end(), [&](const auto& item) {
      const auto* key = item.first.template as<int64_t>();
      return key != nullptr && *key >= 0 && *key < static_cast<int64_t>(dict.items.size());
    });
  }

  static bool has_training(const Dict& dict) {
    const Value* training = dict.find("training");
    return training != nullptr && training->as<bool>() != nullptr;
  }

  // Each container is looked at once, however often it is in the value.
  bool holds_tensors(const Value& value) {  // NOLINT(misc-no-recursion)
    if (value.as<TensorRef>() != nullptr || value.as<Dict>() != nullptr || module_of(value) != nullptr) return true;
    const auto* list = value.as<List>();
    if (list == nullptr) return false;
    const auto [known, fresh] = holds_.try_emplace(list, false);
    if (!fresh) return known->second;
    const bool holds = std::any_of(list->begin(), list->end(), [&](const Value& item) { return holds_tensors(item); });
    return holds_[list] = holds;
  }

  // The attributes of a torch.nn.Module.
  static const Dict* module_of(const Value& value) {
    const auto* object = value.as<Object>();
    const auto* state = object != nullptr && object->state != nullptr ? object->state->as<Dict>() : nullptr;
    if (state == nullptr) return nullptr;
    for (const char* part : {"_parameters", "_buffers", "_modules"}) {
      const Value* found = state->find(part);
      if (found == nullptr || found->as<Dict>() == nullptr) return nullptr;
    }
    return state;
  }

  void go_into_module(const Dict& module, const std::string& name, const std::vector<PathPart>& path) {
    const Value* passing = module.find("_non_persistent_buffers_set");
    const auto* passing_names = passing != nullptr ? passing->as<Set>() : nullptr;
    const auto is_passing = [&](const Value& key) {
      return passing_names != nullptr &&
             std::find(passing_names->items.begin(), passing_names->items.end(), key) != passing_names->items.end();
    };
    for (const char* kind : {"_parameters", "_buffers", "_modules"}) {
      for (const auto& [key, item] : module.find(kind)->as<Dict>()->items) {
        const bool is_kept = item.as<None>() == nullptr && (kind != std::string_view("_buffers") || !is_passing(key));
        if (is_kept) part(item, key, name, path);
      }
    }
  }

  const FlattenOptions& options_;
  size_t bytes_ = 0;
  std::unordered_set<std::string> names_;
  std::unordered_map<const List*, bool> holds_;
};

}  // namespace

Flattened flatten(const Value& value, const FlattenOptions& options) {
  Flattener flattener(options);
  flattener.go(value, "", {});
  return std::move(flattener.flat);
}

}  // namespace sherd::format
