#pragma once
// Values as Python's pickles hold them, without Python: numbers, texts, containers, tensors by reference, and whatever
// else by its name and the bytes it was made of.

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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
  bool array = false;  // a bytearray
  bool operator==(const Bytes&) const = default;
};
/// A class or a function, never looked up: "collections", "OrderedDict".
struct Global {
  std::string module;
  std::string name;
  bool operator==(const Global&) const = default;
};

using List = std::vector<Value>;
struct Tuple;
struct Set;
struct Dict;
struct Object;
/// A tensor whose bytes are in another record: `storage` names it ("0" is data/0).
struct TensorRef {
  DType dtype = DType::f32;
  std::string storage = {};
  int64_t storage_bytes = 0;
  int64_t offset = 0;  // in elements
  Dims sizes = {};
  Dims strides = {};
  bool requires_grad = false;
  std::string device = "cpu";
  bool meta = false;       // no data at all
  bool parameter = false;  // torch.nn.Parameter around it
  bool operator==(const TensorRef&) const = default;
};

template <class T, class Variant>
inline constexpr bool kIsHeld = false;
template <class T, class... Held>
inline constexpr bool kIsHeld<T, std::variant<Held...>> = (std::same_as<T, Held> || ...);

/// Copies share their containers.
class Value {
 public:
  using Content =
      std::variant<None, bool, int64_t, BigInt, double, std::complex<double>, std::string, Bytes, std::shared_ptr<List>,
                   std::shared_ptr<Tuple>, std::shared_ptr<Set>, std::shared_ptr<Dict>, std::shared_ptr<Global>,
                   std::shared_ptr<Object>, std::shared_ptr<TensorRef>>;
  Value() = default;
  /// From any of these, containers by value too; from every kind of number and of text.
  // NOLINTBEGIN(google-explicit-constructor, bugprone-forwarding-reference-overload): Value itself is left out
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Value> &&
           (std::is_arithmetic_v<std::remove_cvref_t<T>> || std::is_convertible_v<T&&, std::string_view> ||
            kIsHeld<std::shared_ptr<std::remove_cvref_t<T>>, Content> || std::is_constructible_v<Content, T&&>))
      Value(T&& content)
      : content_(content_of(std::forward<T>(content))) {}
  // NOLINTEND(google-explicit-constructor, bugprone-forwarding-reference-overload)

  /// The content where it is a T (List, not a pointer to one); null otherwise.
  template <class T>
  const T* as() const {
    if constexpr (kIsHeld<T, Content>) {
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
  template <class T>
  static Content content_of(T&& content) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (std::same_as<Plain, bool> || std::same_as<Plain, Content>) {
      return content;
    } else if constexpr (std::integral<Plain>) {
      return static_cast<int64_t>(content);
    } else if constexpr (std::floating_point<Plain>) {
      return static_cast<double>(content);
    } else if constexpr (std::is_convertible_v<T&&, std::string_view>) {
      return std::string(std::forward<T>(content));
    } else if constexpr (kIsHeld<std::shared_ptr<Plain>, Content>) {
      return std::make_shared<Plain>(std::forward<T>(content));
    } else {
      return Content(std::forward<T>(content));
    }
  }

  Content content_ = None{};
};

struct Tuple {
  std::vector<Value> items = {};
  bool size = false;  // a torch.Size; equal to the tuple of its numbers, as in Python
};
struct Set {
  std::vector<Value> items = {};
  bool frozen = false;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items = {};  // in the order of the file, keys of any kind
  bool ordered = false;                             // collections.OrderedDict
  /// What lies beside the items, null where nothing does: {"_metadata": ...} of a module's state_dict().
  std::shared_ptr<Value> state = {};

  const Value* find(std::string_view key) const;  // linear; null where there is none
};
/// What a pickle makes by calling a global or by building an instance of it: never called, only remembered.
struct Object {
  Global type;          // {"", "persistent_id"} for one that is no tensor's storage: the id is the argument
  bool called = false;  // REDUCE; otherwise NEWOBJ
  std::vector<Value> arguments = {};
  Dict keywords = {};                 // NEWOBJ_EX
  std::shared_ptr<Value> state = {};  // BUILD; null where there was none
  List appended = {};                 // where the class is a kind of list or set
  Dict items = {};                    // where it is a kind of dict
};
/// Calls `visit` with every tensor in a value, each object once.
void for_each_tensor(const Value& value, const std::function<void(const TensorRef&)>& visit);

/// The value made anew from its parts, each shared container once. What `change` gives for a value takes its place;
/// then its parts are changed.
Value changed(const Value& value, const std::function<std::optional<Value>(const Value&)>& change);

/// "{'a': 1, 'b': (tensor f32[2, 3], None)}", cut short beyond `limit` characters: for people and errors.
std::string to_string(const Value& value, size_t limit = 200);

}  // namespace sherd::format
