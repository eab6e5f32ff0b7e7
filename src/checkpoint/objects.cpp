#include "checkpoint/objects.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "checkpoint/dtypes.h"
#include "checkpoint/tensor_bytes.h"
#include "comm/errors.h"
#include "format/saved.h"
#include "format/transforms.h"
#include "tensor/meta.h"

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
    tensors_.push_back(elements_of(tensor.detach().cpu()));
    return std::make_shared<format::TensorRef>(std::move(ref));
  }

  [[noreturn]] void refuse(const char* problem) const {
    throw_value_error(ErrorText(operation_, problem).help("a StateList or a StateDict in place of the tuple"));
  }

  const char* operation_;
  std::vector<at::Tensor>& tensors_;
};

using TensorOf = std::function<at::Tensor(const format::TensorRef&)>;

std::optional<StateValue> convert(const Value& value, const TensorOf& tensor_of);

std::optional<StateList> convert(const std::vector<Value>& items, const TensorOf& tensor_of) {
  StateList list;
  for (const Value& item : items) {
    auto converted = convert(item, tensor_of);
    if (!converted) return std::nullopt;
    list.push_back(std::move(*converted));
  }
  return list;
}

std::optional<StateValue> convert(const format::Dict& dict, const TensorOf& tensor_of) {
  StateDict out;
  for (const auto& [key, item] : dict.items) {
    auto converted = convert(item, tensor_of);
    if (!converted) return std::nullopt;
    if (const auto* text = key.as<std::string>()) {
      out[*text] = std::move(*converted);
    } else if (const auto* number = key.as<int64_t>()) {
      out[*number] = std::move(*converted);
    } else {
      return std::nullopt;
    }
  }
  return StateValue(std::move(out));
}

std::optional<StateValue> convert(const Value& value, const TensorOf& tensor_of) {
  if (value.as<format::None>() != nullptr) return StateValue();
  if (const auto* boolean = value.as<bool>()) return StateValue(*boolean);
  if (const auto* integer = value.as<int64_t>()) return StateValue(*integer);
  if (const auto* number = value.as<double>()) return StateValue(*number);
  if (const auto* text = value.as<std::string>()) return StateValue(*text);
  if (const auto* bytes = value.as<format::Bytes>(); bytes != nullptr && !bytes->array) {
    return StateValue(StateBytes{bytes->data});
  }
  if (const auto* ref = value.as<format::TensorRef>()) return StateValue(tensor_of(*ref));
  if (const auto* dict = value.as<format::Dict>()) return convert(*dict, tensor_of);
  if (const auto* list = value.as<format::List>()) {
    auto items = convert(*list, tensor_of);
    if (items) return StateValue(std::move(*items));
  }
  if (const auto* tuple = value.as<format::Tuple>()) {
    auto items = convert(tuple->items, tensor_of);
    if (items) return StateValue(StateTuple{std::move(*items)});
  }
  return std::nullopt;
}

// Bytes that a tensor takes beyond those that the archive has of it.
int64_t bytes_beyond(const format::TensorRef& ref) {
  const int64_t bytes = numel(ref.sizes) * size_of(ref.dtype);
  return std::clamp<int64_t>(bytes - (ref.meta ? 0 : ref.storage_bytes), 0, format::kMostUnfolded + 1);
}

// Before the first of them has memory. An object that stays opaque has no tensors.
void check_unfolded(const Value& value, const std::string& name) {
  bool any = false;
  format::for_each_tensor(value, [&](const format::TensorRef& ref) { any = any || bytes_beyond(ref) > 0; });
  if (!any) return;
  int64_t unfolded = 0;
  std::string found;
  const auto count = [&](const format::TensorRef& ref) {
    const int64_t before = std::exchange(unfolded, std::min(unfolded + bytes_beyond(ref), format::kMostUnfolded + 1));
    if (before <= format::kMostUnfolded && unfolded > format::kMostUnfolded) found = format::to_string(Value(ref));
    return at::Tensor();
  };
  if (!convert(value, count) || unfolded <= format::kMostUnfolded) return;
  throw std::invalid_argument(
      ErrorText("load", "a tensor is much larger than what is stored of it").fact("in", name).fact("tensor", found));
}

}  // namespace

Value to_pickle(const char* operation, const StateValue& value, std::vector<at::Tensor>& tensors) {
  return ToPickle(operation, tensors).convert(value);
}

StateValue object_from(std::string archive, const std::string& name, int64_t origin) {
  const format::MemorySource source(std::as_bytes(std::span(archive)), origin);
  const format::Saved saved = format::read_saved(source, name);
  check_unfolded(saved.value, name);
  const auto tensor_of = [&](const format::TensorRef& ref) {
    at::Tensor tensor = at::empty(ref.sizes, at::TensorOptions(to_torch(ref.dtype)));
    if (tensor.numel() == 0 || ref.meta) return tensor;
    std::string record = format::read_record(source, *saved.archive.find("data/" + ref.storage), name);
    tensor.copy_(
        at::from_blob(record.data() + ref.offset * size_of(ref.dtype), ref.sizes, ref.strides, tensor.options()));
    return tensor;
  };
  if (auto converted = convert(saved.value, tensor_of)) return std::move(*converted);
  return StateOpaque{std::move(archive)};
}

}  // namespace sherd::detail
