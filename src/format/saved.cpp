#include "format/saved.h"

#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "format/pickle.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

// What the archive itself defines, by its fields; TorchScript's typed containers as plain ones.
std::optional<Value> without_script_class(const Value& value) {
  const auto* object = value.as<Object>();
  if (object == nullptr) return std::nullopt;
  const Global& type = object->type;
  if (type.module == "__torch__" || type.module.starts_with("__torch__.")) {
    const auto* fields = object->state != nullptr ? object->state->as<Dict>() : nullptr;
    if (fields != nullptr) return *fields;
    if (object->state == nullptr && object->arguments.empty()) return Dict{};
  }
  if (type.module == "torch.jit._pickle" && object->called && !object->arguments.empty()) {
    const bool builds_list = type.name.starts_with("build_") && object->arguments[0].as<List>() != nullptr;
    if (builds_list || type.name == "restore_type_tag") {
      auto inner = without_script_class(object->arguments[0]);
      return inner ? inner : object->arguments[0];
    }
  }
  return std::nullopt;
}

using Storages = std::unordered_map<std::string_view, const Record*>;

Storages storages_of(const Archive& archive) {
  Storages storages;
  for (const Record& record : archive.records) {
    const std::string_view name = record.name;
    if (name.starts_with("data/")) storages.emplace(name.substr(5), &record);
  }
  return storages;
}

void check_storage(const Storages& storages, const TensorRef& tensor, std::string_view name) {
  if (tensor.meta) return;
  const auto found = storages.find(tensor.storage);
  const Record* const record = found != storages.end() ? found->second : nullptr;
  if (record != nullptr && record->size >= tensor.storage_bytes) return;
  throw std::invalid_argument(
      ErrorText("read_saved",
                record == nullptr ? "a tensor's bytes are not in the archive" : "a tensor's bytes are cut off")
          .fact("in", name)
          .fact("tensor", to_string(Value(tensor)))
          .fact("record", fmt::format("data/{} of {} bytes", tensor.storage, tensor.storage_bytes))
          .fact("there", record == nullptr ? "none of that name" : fmt::format("{} bytes", record->size)));
}

/// torch writes down the order of its machine since 2.1; before, nobody wrote another.
void check_byteorder(const ByteSource& source, const Archive& archive, std::string_view name) {
  const Record* const record = archive.find("byteorder");
  if (record == nullptr) return;
  constexpr int64_t kMost = 16;
  const std::string order = record->size <= kMost ? read_record(source, *record, name) : "a longer text";
  if (order == "little") return;
  throw std::invalid_argument(
      ErrorText("read_saved", "its numbers are not little endian")
          .fact("in", name)
          .fact("byteorder", order)
          .help("on a little-endian machine, torch.save(torch.load(path), path) writes it in that order"));
}

}  // namespace

Value without_script_classes(const Value& value) { return changed(value, without_script_class); }

Saved read_saved(const ByteSource& source, std::string_view name) {
  return read_saved(source, read_archive(source, name), name);
}

Saved read_saved(const ByteSource& source, Archive archive, std::string_view name) {
  Saved saved{.archive = std::move(archive), .value = {}};
  const Record* const record = saved.archive.find("data.pkl");
  if (record == nullptr) {
    throw std::invalid_argument(ErrorText("read_saved", "it has no record \"data.pkl\"").fact("in", name));
  }
  check_byteorder(source, saved.archive, name);
  const std::string bytes = read_record(source, *record, name);
  const std::string place = fmt::format("{}, data.pkl", name);
  saved.value = unpickle(std::as_bytes(std::span(bytes)), {.operation = "read_saved", .source = place});
  if (saved.archive.find("constants.pkl") != nullptr) saved.value = without_script_classes(saved.value);
  const Storages storages = storages_of(saved.archive);
  for_each_tensor(saved.value, [&](const TensorRef& tensor) { check_storage(storages, tensor, name); });
  return saved;
}

namespace {

// Of a persistent id that names a storage: ("storage", class, key, device, elements); null for all others.
const std::string* storage_key(const Value& value) {
  const auto* object = value.as<Object>();
  if (object == nullptr || object->type != Global{"", "persistent_id"} || object->arguments.size() != 1) return nullptr;
  const auto* id = object->arguments[0].as<Tuple>();
  if (id == nullptr || id->items.size() < 3) return nullptr;
  const auto* kind = id->items[0].as<std::string>();
  return kind != nullptr && *kind == "storage" ? id->items[2].as<std::string>() : nullptr;
}

}  // namespace

void for_each_storage(const Value& value, const std::function<void(const std::string& key, int64_t bytes)>& visit) {
  std::unordered_set<std::string> seen;
  for_each_tensor(value, [&](const TensorRef& tensor) {
    if (!tensor.meta && seen.insert(tensor.storage).second) visit(tensor.storage, tensor.storage_bytes);
  });
  changed(value, [&](const Value& part) -> std::optional<Value> {
    const std::string* key = storage_key(part);
    if (key != nullptr && seen.insert(*key).second) visit(*key, -1);
    return std::nullopt;
  });
}

bool needs_storages(const Value& value) {
  bool any = false;
  for_each_storage(value, [&](const std::string&, int64_t) { any = true; });
  return any;
}

Value with_storages(const Value& value, const std::function<std::string(const std::string& key)>& new_key) {
  return changed(value, [&](const Value& part) -> std::optional<Value> {
    if (const auto* tensor = part.as<TensorRef>(); tensor != nullptr && !tensor->meta) {
      TensorRef here = *tensor;
      here.storage = new_key(tensor->storage);
      return here;
    }
    const std::string* key = storage_key(part);
    if (key == nullptr) return std::nullopt;
    Object object = *part.as<Object>();
    Tuple id = *object.arguments[0].as<Tuple>();
    id.items[2] = new_key(*key);
    object.arguments[0] = std::move(id);
    return object;
  });
}

std::string read_storage(const ByteSource& source, const Archive& archive, const std::string& key, int64_t bytes,
                         std::string_view name) {
  const Record* const record = archive.find("data/" + key);
  if (record == nullptr) {
    throw std::invalid_argument(ErrorText("read_saved", "the bytes of a storage are not in the archive")
                                    .fact("in", name)
                                    .fact("record", "data/" + key)
                                    .fact("there", "none of that name"));
  }
  std::string data = read_record(source, *record, name);
  if (bytes >= 0) data.resize(static_cast<size_t>(bytes));
  return data;
}

}  // namespace sherd::format
