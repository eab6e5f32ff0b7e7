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
    if (const auto* dict = value.as<Dict>(); dict != nullptr && !dict->items.empty() && !is_leaf(*dict, value)) {
      if (has_number(*dict)) flat.dicts.push_back(path);
      if (dict->ordered) flat.ordered.push_back({path, dict->state != nullptr ? *dict->state : Value()});
      const bool is_script = options_.script && has_training(*dict);
      for (const auto& [key, item] : dict->items) {
        if (is_script && item.as<Dict>() == nullptr && item.as<TensorRef>() == nullptr) continue;
        part(item, key, name, path);
      }
    } else if (const auto* list = value.as<List>(); list != nullptr && holds_tensors(value)) {
      for (size_t i = 0; i < list->size(); ++i) part((*list)[i], static_cast<int64_t>(i), name, path);
    } else if (const Dict* module = module_of(value)) {
      go_into_module(*module, name, path);
    } else if (path.empty() && dict != nullptr && dict->items.empty()) {
      // A state of nothing.
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

  // A dict whose keys would become texts, unless there are tensors to be found by them.
  bool is_leaf(const Dict& dict, const Value& value) {
    const auto [known, fresh] = leaves_.try_emplace(&dict, false);
    if (!fresh) return known->second;
    const auto is_name = [](const auto& item) {
      return item.first.template as<std::string>() != nullptr || item.first.template as<int64_t>() != nullptr;
    };
    if (std::all_of(dict.items.begin(), dict.items.end(), is_name)) return false;
    bool tensors = false;
    for_each_tensor(value, [&](const TensorRef&) { tensors = true; });
    return known->second = !tensors;
  }

  // Whether a key is an int.
  static bool has_number(const Dict& dict) {
    return std::any_of(dict.items.begin(), dict.items.end(),
                       [](const auto& item) { return item.first.template as<int64_t>() != nullptr; });
  }

  static bool has_training(const Dict& dict) {
    const Value* training = dict.find("training");
    return training != nullptr && training->as<bool>() != nullptr;
  }

  bool holds_tensors(const Value& value) {  // NOLINT(misc-no-recursion)
    if (value.as<TensorRef>() != nullptr || module_of(value) != nullptr) return true;
    if (const auto* dict = value.as<Dict>()) return !is_leaf(*dict, value);
    const auto* list = value.as<List>();
    if (list == nullptr) return false;
    const auto [known, fresh] = holds_.try_emplace(list, false);
    if (!fresh) return known->second;
    const bool holds = std::any_of(list->begin(), list->end(), [&](const Value& item) { return holds_tensors(item); });
    return holds_[list] = holds;
  }

  // The attributes of a torch.nn.Module.
  const Dict* module_of(const Value& value) {
    const auto* object = value.as<Object>();
    const auto* state = object != nullptr && object->state != nullptr ? object->state->as<Dict>() : nullptr;
    if (state == nullptr) return nullptr;
    const auto [known, fresh] = modules_.try_emplace(state, false);
    if (fresh) {
      const auto is_dict = [&](const char* part) {
        const Value* found = state->find(part);
        return found != nullptr && found->as<Dict>() != nullptr;
      };
      known->second = is_dict("_parameters") && is_dict("_buffers") && is_dict("_modules");
    }
    return known->second ? state : nullptr;
  }

  void go_into_module(const Dict& module, const std::string& name, const std::vector<PathPart>& path) {
    std::unordered_set<std::string_view> passing;
    const Value* found = module.find("_non_persistent_buffers_set");
    if (const auto* names = found != nullptr ? found->as<Set>() : nullptr) {
      for (const Value& each : names->items) {
        if (const auto* text = each.as<std::string>()) passing.insert(*text);
      }
    }
    const auto is_passing = [&](const Value& key) {
      const auto* text = key.as<std::string>();
      return text != nullptr && passing.contains(*text);
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
  // What was found of containers: each is looked at once, however often it is in the value.
  std::unordered_map<const List*, bool> holds_;
  std::unordered_map<const Dict*, bool> leaves_;
  std::unordered_map<const Dict*, bool> modules_;  // attributes of objects
};

}  // namespace

Flattened flatten(const Value& value, const FlattenOptions& options) {
  Flattener flattener(options);
  flattener.go(value, "", {});
  return std::move(flattener.flat);
}

}  // namespace sherd::format
