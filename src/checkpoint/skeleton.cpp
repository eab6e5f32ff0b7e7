#include "checkpoint/skeleton.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "checkpoint/placing.h"
#include "checkpoint/state_paths.h"
#include "checkpoint/tensor_bytes.h"
#include "comm/answers.h"
#include "comm/errors.h"
#include "sharded/bytes.h"
#include "sherd/world.h"

namespace sherd::detail {
namespace {

using at::Tensor;

enum class Kind : uint8_t { none, boolean, integer, number, text, bytes, opaque, tensor, list, tuple, dict };

class Writer {
 public:
  explicit Writer(const char* operation) : operation_(operation) {}

  void put(const StateDict& dict) {
    out_.put(static_cast<uint64_t>(dict.size()));
    for (const auto& [key, value] : dict) {
      path_.push_back(key);
      out_.put(std::holds_alternative<int64_t>(key));
      if (const auto* number = std::get_if<int64_t>(&key)) {
        out_.put(*number);
      } else {
        out_.put_text(std::get<std::string>(key));
      }
      put(value);
      path_.pop_back();
    }
  }

  std::string take() { return out_.take(); }

 private:
  void put(const StateValue& value) {
    if (value.is_none()) return out_.put(Kind::none);
    if (const bool* boolean = value.boolean()) return put(Kind::boolean, *boolean);
    if (const int64_t* integer = value.integer()) return put(Kind::integer, *integer);
    if (const auto number = value.number()) return put(Kind::number, *number);
    if (const std::string* text = value.text()) return put_text(Kind::text, *text);
    if (const auto* bytes = std::get_if<StateBytes>(&value.content())) return put_text(Kind::bytes, bytes->data);
    if (const auto* object = std::get_if<StateOpaque>(&value.content())) return put_text(Kind::opaque, object->archive);
    if (const Tensor* tensor = value.tensor()) return put_tensor(*tensor);
    if (const StateList* list = value.list()) return put_items(Kind::list, *list);
    if (const StateTuple* tuple = value.tuple()) return put_items(Kind::tuple, tuple->items);
    const StateDict* dict = value.dict();
    if (dict == nullptr) refuse(value, "a value cannot be sent to other ranks");
    out_.put(Kind::dict);
    put(*dict);
  }

  template <class T>
  void put(Kind kind, T value) {
    out_.put(kind);
    out_.put(value);
  }
  void put_text(Kind kind, const std::string& text) {
    out_.put(kind);
    out_.put_text(text);
  }
  void put_items(Kind kind, const std::vector<StateValue>& items) {
    put(kind, static_cast<uint64_t>(items.size()));
    for (size_t i = 0; i < items.size(); ++i) {
      path_.emplace_back(static_cast<int64_t>(i));
      put(items[i]);
      path_.pop_back();
    }
  }
  void put_tensor(const Tensor& tensor) {
    if (!tensor.defined() || is_in_parts(tensor)) refuse(tensor, "a tensor is not whole");
    put(Kind::tensor, static_cast<int32_t>(tensor.scalar_type()));
    out_.put_dims(tensor.sizes().vec());
    const bool is_one = tensor.numel() == 1 && !tensor.is_meta();
    const Tensor data = is_one ? elements_of(tensor.detach().cpu()) : Tensor();
    out_.put_text(is_one ? std::string_view(static_cast<const char*>(data.const_data_ptr()), data.nbytes())
                         : std::string_view());
  }

  [[noreturn]] void refuse(const StateValue& value, const char* problem) const {
    throw_value_error(ErrorText(operation_, problem)
                          .fact("value", quoted(path_))
                          .fact("it is", value.kind())
                          .help("a state as get_model_state_dict gives it with full_state_dict"));
  }

  const char* operation_;
  ByteWriter out_;
  StatePath path_;
};

class Reader {
 public:
  Reader(const char* operation, const std::string& bytes) : in_(operation, bytes) {}

  StateDict dict() {
    StateDict dict;
    const auto count = in_.get<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const StateKey key = in_.get<bool>() ? StateKey(in_.get<int64_t>()) : StateKey(in_.get_text());
      dict[key] = value();
    }
    return dict;
  }

 private:
  StateValue value() {
    switch (in_.get<Kind>()) {
      case Kind::none:
        return {};
      case Kind::boolean:
        return in_.get<bool>();
      case Kind::integer:
        return in_.get<int64_t>();
      case Kind::number:
        return in_.get<double>();
      case Kind::text:
        return in_.get_text();
      case Kind::bytes:
        return StateBytes{in_.get_text()};
      case Kind::opaque:
        return StateOpaque{in_.get_text()};
      case Kind::tensor:
        return tensor();
      case Kind::list:
        return items();
      case Kind::tuple:
        return StateTuple{items()};
      case Kind::dict:
        return dict();
    }
    return {};
  }

  std::vector<StateValue> items() {
    std::vector<StateValue> items(in_.get<uint64_t>());
    for (StateValue& item : items) item = value();
    return items;
  }

  Tensor tensor() {
    const auto dtype = static_cast<c10::ScalarType>(in_.get<int32_t>());
    const Dims size = in_.get_dims();
    const std::string data = in_.get_text();
    Tensor tensor = at::empty(size, at::TensorOptions(dtype).device(data.empty() ? c10::kMeta : c10::kCPU));
    if (!data.empty()) std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
    return tensor;
  }

  ByteReader in_;
};

}  // namespace

std::string skeleton_of(const char* operation, const StateDict& state) {
  Writer writer(operation);
  writer.put(state);
  return writer.take();
}

StateDict from_skeleton(const char* operation, const std::string& bytes) { return Reader(operation, bytes).dict(); }

StateDict told_by_rank0(const char* operation, const StateDict& state) {
  const World world = current_world();
  const std::vector<std::string> told = answers_of_all(
      world.group(), operation, [&] { return world.rank() == 0 ? skeleton_of(operation, state) : std::string(); });
  return world.rank() == 0 ? state : from_skeleton(operation, told.front());
}

}  // namespace sherd::detail
