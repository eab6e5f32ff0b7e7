#pragma once
// Values as Python's pickles hold them, without Python: numbers, texts, containers, tensors by reference, and whatever
// else by its name and the bytes it was made of.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "format/dtype.h"
#include "sherd/box.h"

namespace sherd::format {

class Value;

struct None {
  bool operator==(const None&) const = default;
};
/// An int beyond 64 bits: two's complement, little endian, as in the pickle.
struct BigInt {
  std::string bytes;
  bool operator==(const BigInt&) const = default;
};
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};
/// A class or a function, never looked up: "collections", "OrderedDict".
struct Global {
  std::string module;
  std::string name;
  bool operator==(const Global&) const = default;
};

using List = std::vector<Value>;
struct Tuple {
  std::vector<Value> items;
};
struct Set {
  std::vector<Value> items;
  bool frozen = false;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of the file, keys of any kind
  bool ordered = false;                        // collections.OrderedDict
};
/// What a pickle makes by calling a global or by building an instance of it: never called, only remembered.
struct Object {
  Global type;
  bool called = false;               // REDUCE; otherwise NEWOBJ
  std::vector<Value> arguments;
  std::shared_ptr<Value> state;      // BUILD; null where there was none
};
/// A tensor whose bytes are in another record: `storage` names it ("0" is data/0).
struct TensorRef {
  DType dtype = DType::f32;
  std::string storage;
  int64_t storage_bytes = 0;
  int64_t offset = 0;  // in elements
  Dims sizes;
  Dims strides;
  bool requires_grad = false;
  std::string device = "cpu";
  bool meta = false;       // no data at all
  bool parameter = false;  // torch.nn.Parameter around it
};

/// Copies share their containers.
class Value {
 public:
  using Content = std::variant<None, bool, int64_t, BigInt, double, std::string, Bytes, std::shared_ptr<List>,
                               std::shared_ptr<Tuple>, std::shared_ptr<Set>, std::shared_ptr<Dict>, Global,
                               std::shared_ptr<Object>, std::shared_ptr<TensorRef>>;
  Value() = default;
  template <class T>
    requires std::is_constructible_v<Content, T&&>
  Value(T&& content) : content_(std::forward<T>(content)) {}  // NOLINT(google-explicit-constructor)

  template <class T>
  const T* as() const {
    if constexpr (requires { std::get_if<T>(&content_); }) {
      return std::get_if<T>(&content_);
    } else {
      const auto* pointer = std::get_if<std::shared_ptr<T>>(&content_);
      return pointer != nullptr ? pointer->get() : nullptr;
    }
  }
  const Content& content() const { return content_; }

  /// By content, containers too.
  bool operator==(const Value& other) const;

 private:
  Content content_ = None{};
};

/// "{'a': 1, 'b': (tensor f32[2, 3], None)}", cut short beyond `limit` characters: for people and errors.
std::string to_string(const Value& value, size_t limit = 200);

}  // namespace sherd::format
