#include "checkpoint/objects.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "checkpoint/dtypes.h"
#include "checkpoint/tensor_bytes.h"
#include "comm/errors.h"
#include "format/saved.h"
#include "format/unfolded.h"
#include "tensor/meta.h"
#include "tensor/own_memory.h"

namespace sherd::detail {
namespace {

using format::Value;

class ToPickle {
 public:
  ToPickle(const char* operation, std::vector<at::Tensor>& tensors) : operation_(operation), tensors_(tensors) {}

  Value convert(const StateValue& value) {
    return std::visit([&](const auto& content) { return of(content); }, value.content());
  }

 private:
  static Value of(std::monostate) { return format::None{}; }
  static Value of(bool value) { return value; }
  static Value of(int64_t value) { return value; }
  static Value of(double value) { return value; }
  static Value of(const std::string& text) { return text; }
  static Value of(const StateBytes& bytes) { return format::Bytes{bytes.data}; }
  Value of(const StateOpaque&) { refuse("an object of Python stands inside a tuple or a list of other values"); }
  Value of(const std::shared_ptr<Checkpointable>&) { refuse("a tensor of several ranks stands inside a tuple"); }
  Value of(const std::shared_ptr<Stateful>&) { refuse("a Stateful stands inside a tuple"); }
  Value of(const std::shared_ptr<StateList>& list) {
    auto out = std::make_shared<format::List>();
    for (const StateValue& item : *list) out->push_back(convert(item));
    return out;
  }
  Value of(const std::shared_ptr<StateTuple>& tuple) {
    auto out = std::make_shared<format::Tuple>();
    for (const StateValue& item : tuple->items) out->items.push_back(convert(item));
    return out;
  }
  Value of(const std::shared_ptr<StateDict>& dict) {
    auto out = std::make_shared<format::Dict>();
    for (const auto& [key, item] : *dict) {
      out->items.emplace_back(std::visit([](const auto& part) { return Value(part); }, key), convert(item));
    }
    return out;
  }
  Value of(const at::Tensor& tensor) {
    if (!tensor.defined()) return format::None{};
    if (has_meta(tensor.unsafeGetTensorImpl())) refuse("a tensor of several ranks stands inside a tuple");
    format::TensorRef ref;
    ref.dtype = to_format(operation_, tensor.scalar_type());
    ref.storage = fmt::to_string(tensors_.size());
    ref.storage_bytes = tensor.numel() * tensor.element_size();
    ref.sizes = tensor.sizes().vec();
    int64_t stride = 1;
    ref.strides.assign(ref.sizes.size(), 1);
    for (size_t d = ref.sizes.size(); d-- > 0;) {
      ref.strides[d] = stride;
      stride *= std::max<int64_t>(ref.sizes[d], 1);
    }
    tensors_.push_back(elements_of(with_zeros(tensor).detach().cpu()));
    return std::make_shared<format::TensorRef>(std::move(ref));
  }

  [[noreturn]] void refuse(const char* problem) const {
    throw_value_error(ErrorText(operation_, problem).help("a StateList or a StateDict in place of the tuple"));
  }

  const char* operation_;
  std::vector<at::Tensor>& tensors_;
};

// Whether states have kinds for a value and for all that is in it: a container that stands in it many times is looked
// at once.
class Counterparts {
 public:
  bool has(const Value& value) {
    return std::visit([this](const auto& content) { return is_known(content); }, value.content());
  }

 private:
  template <class T>
  static bool is_known(const T& content) {
    if constexpr (std::is_same_v<T, format::Bytes>) return !content.array;
    return std::is_same_v<T, format::None> || std::is_same_v<T, bool> || std::is_same_v<T, int64_t> ||
           std::is_same_v<T, double> || std::is_same_v<T, std::string>;
  }
  template <class T>
  bool is_known(const std::shared_ptr<T>& shared) {
    const auto [found, is_new] = known_.try_emplace(shared.get(), false);
    if (is_new) {
      const bool all = has_all(*shared);
      known_[shared.get()] = all;
      return all;
    }
    return found->second;
  }

  template <class T>
  static bool has_all(const T& /*other*/) {
    return std::is_same_v<T, format::TensorRef>;
  }
  bool has_all(const format::List& list) {
    return std::ranges::all_of(list, [this](const Value& item) { return has(item); });
  }
  bool has_all(const format::Tuple& tuple) { return has_all(tuple.items); }
  bool has_all(const format::Dict& dict) {
    return std::ranges::all_of(dict.items, [this](const auto& item) {
      const bool is_key =
          item.first.template as<std::string>() != nullptr || item.first.template as<int64_t>() != nullptr;
      return is_key && has(item.second);
    });
  }

  std::unordered_map<const void*, bool> known_;
};

using TensorOf = std::function<at::Tensor(const format::TensorRef&)>;

StateValue convert(const Value& value, const TensorOf& tensor_of);

StateList convert(const std::vector<Value>& items, const TensorOf& tensor_of) {
  StateList list;
  list.reserve(items.size());
  for (const Value& item : items) list.push_back(convert(item, tensor_of));
  return list;
}

StateDict convert(const format::Dict& dict, const TensorOf& tensor_of) {
  StateDict out;
  for (const auto& [key, item] : dict.items) {
    const auto* text = key.as<std::string>();
    out[text != nullptr ? StateKey(*text) : StateKey(*key.as<int64_t>())] = convert(item, tensor_of);
  }
  return out;
}

// Of one that states have kinds for.
StateValue convert(const Value& value, const TensorOf& tensor_of) {
  if (const auto* boolean = value.as<bool>()) return *boolean;
  if (const auto* integer = value.as<int64_t>()) return *integer;
  if (const auto* number = value.as<double>()) return *number;
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* bytes = value.as<format::Bytes>()) return StateBytes{bytes->data};
  if (const auto* ref = value.as<format::TensorRef>()) return tensor_of(*ref);
  if (const auto* dict = value.as<format::Dict>()) return convert(*dict, tensor_of);
  if (const auto* list = value.as<format::List>()) return convert(*list, tensor_of);
  if (const auto* tuple = value.as<format::Tuple>()) return StateTuple{convert(tuple->items, tensor_of)};
  return {};
}

}  // namespace

Value to_pickle(const char* operation, const StateValue& value, std::vector<at::Tensor>& tensors) {
  return ToPickle(operation, tensors).convert(value);
}

StateValue object_from(std::string archive, const std::string& name, int64_t origin) {
  const format::MemorySource source(std::as_bytes(std::span(archive)), origin);
  const format::Saved saved = format::read_saved(source, name);
  if (!Counterparts().has(saved.value)) return StateOpaque{std::move(archive)};
  format::check_unfolded(saved.value, "load", name);
  const auto tensor_of = [&](const format::TensorRef& ref) {
    at::Tensor tensor = at::empty(ref.sizes, at::TensorOptions(to_torch(ref.dtype)));
    if (tensor.numel() == 0 || ref.meta) return tensor;
    std::string record = format::read_record(source, *saved.archive.find("data/" + ref.storage), name);
    tensor.copy_(
        at::from_blob(record.data() + ref.offset * size_of(ref.dtype), ref.sizes, ref.strides, tensor.options()));
    return tensor;
  };
  return convert(saved.value, tensor_of);
}

}  // namespace sherd::detail
