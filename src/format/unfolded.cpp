#include "format/unfolded.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "format/transforms.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

// As states, texts and JSON have values, roughly: one of them, and a container besides.
constexpr int64_t kValueBytes = 64;

int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

struct Size {
  int64_t of_values = 0;
  int64_t of_tensors = 0;
  Size& operator+=(const Size& other) {
    of_values = sum(of_values, other.of_values);
    of_tensors = sum(of_tensors, other.of_tensors);
    return *this;
  }
};

class Unfolding {
 public:
  explicit Unfolding(const Value& value) {
    all_ = of(value);
    for (const auto& [key, storage] : storages_) {
      once_.of_tensors = sum(once_.of_tensors, std::min(storage.stored, storage.wanted));
    }
  }

  bool is_too_far() const { return beyond_in_values() > kMostUnfolded || is_too_far_in_tensors(); }
  bool is_too_far_in_tensors() const { return all_.of_tensors - once_.of_tensors > kMostUnfolded; }
  int64_t bytes_of_values() const { return all_.of_values; }
  const TensorRef& largest() const { return *largest_; }

 private:
  struct Storage {
    int64_t stored = 0;
    int64_t wanted = 0;  // by its tensors, each once
  };

  int64_t beyond_in_values() const { return all_.of_values - once_.of_values; }

  Size of(const Value& value) {
    return std::visit([this](const auto& content) { return of_content(content); }, value.content());
  }
  template <class T>
  Size of_content(const std::shared_ptr<T>& shared) {
    const auto found = known_.find(shared.get());
    if (found != known_.end()) return found->second;
    const Size made = of_parts(*shared);
    known_.emplace(shared.get(), made);
    return made;
  }
  Size of_content(const std::string& text) { return own(static_cast<int64_t>(text.size())); }
  Size of_content(const Bytes& bytes) { return own(static_cast<int64_t>(bytes.data.size())); }
  Size of_content(const BigInt& number) { return own(static_cast<int64_t>(number.bytes.size())); }
  template <class T>
  Size of_content(const T& /*plain*/) {
    return own(0);
  }

  // What is no part of others.
  Size own(int64_t bytes) {
    once_.of_values = sum(once_.of_values, kValueBytes + bytes);
    return {kValueBytes + bytes, 0};
  }

  Size of_parts(const Global&) { return own(0); }
  Size of_parts(const List& list) {
    Size bytes = own(kValueBytes);
    for (const Value& value : list) bytes += of(value);
    return bytes;
  }
  Size of_parts(const Tuple& tuple) { return of_parts(tuple.items); }
  Size of_parts(const Set& set) { return of_parts(set.items); }
  Size of_parts(const Dict& dict) {
    Size bytes = own(kValueBytes);
    for (const auto& [key, value] : dict.items) {
      bytes += of(key);
      bytes += of(value);
    }
    if (dict.state != nullptr) bytes += of(*dict.state);
    return bytes;
  }
  Size of_parts(const Object& object) {
    Size bytes = of_parts(object.arguments);
    bytes += of_parts(object.keywords);
    if (object.state != nullptr) bytes += of(*object.state);
    bytes += of_parts(object.appended);
    bytes += of_parts(object.items);
    return bytes;
  }
  Size of_parts(const TensorRef& tensor) {
    Size bytes = own(0);
    bytes.of_tensors = numel(tensor.sizes) * size_of(tensor.dtype);
    if (!tensor.meta) {
      Storage& storage = storages_[tensor.storage];
      storage.stored = std::max(storage.stored, tensor.storage_bytes);
      storage.wanted = sum(storage.wanted, bytes.of_tensors);
    }
    if (largest_ == nullptr || bytes.of_tensors > largest_bytes_) {
      largest_ = &tensor;
      largest_bytes_ = bytes.of_tensors;
    }
    return bytes;
  }

  Size all_;
  Size once_;
  std::unordered_map<const void*, Size> known_;
  std::unordered_map<std::string_view, Storage> storages_;
  const TensorRef* largest_ = nullptr;
  int64_t largest_bytes_ = 0;
};

}  // namespace

bool unfolds_too_far(const Value& value) { return Unfolding(value).is_too_far(); }

void check_unfolded(const Value& value, std::string_view operation, std::string_view name) {
  const Unfolding unfolding(value);
  if (!unfolding.is_too_far()) return;
  if (unfolding.is_too_far_in_tensors()) {
    throw std::invalid_argument(ErrorText(operation, "a tensor is much larger than what is stored of it")
                                    .fact("in", name)
                                    .fact("tensor", to_string(Value(unfolding.largest()))));
  }
  throw std::invalid_argument(
      ErrorText(operation, "the value unfolds into too many parts")
          .fact("in", name)
          .fact("most", fmt::format("{} bytes more than as it is saved", kMostUnfolded))
          .help("where the file is trusted, torch.load(path), and a value that has less twice"));
}

}  // namespace sherd::format
