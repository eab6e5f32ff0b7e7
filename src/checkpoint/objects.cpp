#include "checkpoint/objects.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "checkpoint/dtypes.h"
#include "comm/errors.h"
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
    tensors_.push_back(tensor.detach().cpu().contiguous());
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
  if (const auto* bytes = value.as<format::Bytes>()) return StateValue(StateBytes{bytes->data});
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

}  // namespace

Value to_pickle(const char* operation, const StateValue& value, std::vector<at::Tensor>& tensors) {
  return ToPickle(operation, tensors).convert(value);
}

std::optional<StateValue> from_pickle(const Value& value, const TensorOf& tensor_of) {
  return convert(value, tensor_of);
}

bool fits(const format::TensorRef& ref, int64_t bytes) {
  const int64_t elements = bytes / size_of(ref.dtype);
  int64_t last = ref.offset;
  if (ref.offset < 0 || ref.sizes.size() != ref.strides.size()) return false;
  for (size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] < 0 || ref.strides[d] < 0) return false;
    if (ref.sizes[d] <= 1) continue;
    if (ref.strides[d] > elements / (ref.sizes[d] - 1)) return false;
    last += (ref.sizes[d] - 1) * ref.strides[d];
    if (last > elements) return false;
  }
  return numel(ref.sizes) == 0 || last < elements;
}

at::Tensor tensor_from(const format::TensorRef& ref, std::span<const std::byte> record, const std::string& reader) {
  if (!fits(ref, static_cast<int64_t>(record.size()))) {
    throw std::invalid_argument(ErrorText("load", "a tensor does not fit the bytes that it refers to")
                                    .fact("tensor", format::to_string(std::make_shared<format::TensorRef>(ref)))
                                    .fact("bytes", fmt::to_string(record.size()))
                                    .fact("reading", reader)
                                    .help("another checkpoint: this one is damaged"));
  }
  at::Tensor tensor = at::empty(ref.sizes, at::TensorOptions(to_torch(ref.dtype)));
  if (tensor.numel() == 0) return tensor;
  // from_blob wants memory that may be written; it is only read.
  auto* first = const_cast<std::byte*>(record.data()) +
                ref.offset * size_of(ref.dtype);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  tensor.copy_(at::from_blob(first, ref.sizes, ref.strides, tensor.options()));
  return tensor;
}

}  // namespace sherd::detail
