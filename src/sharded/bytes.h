#pragma once
// Small messages between ranks, and states in files: numbers and texts one after the other.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/errors.h"

namespace sherd::detail {

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  void put_dims(const std::vector<int64_t>& dims) {
    put(static_cast<uint64_t>(dims.size()));
    for (const int64_t n : dims) put(n);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Throws c10::ValueError "<operation>: the bytes end too early" where they do.
class ByteReader {
 public:
  ByteReader(const char* operation, std::string_view bytes) : operation_(operation), bytes_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string get_text() { return std::string(bytes(get<uint64_t>())); }
  std::vector<int64_t> get_dims() {
    const auto count = get<uint64_t>();
    if (count > bytes_.size() / sizeof(int64_t)) fail();
    std::vector<int64_t> dims;
    for (uint64_t i = 0; i < count; ++i) dims.push_back(get<int64_t>());
    return dims;
  }
  std::string_view bytes(uint64_t count) {
    if (count > bytes_.size()) fail();
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }
  size_t left() const { return bytes_.size(); }

 private:
  [[noreturn]] void fail() const {
    throw_value_error(ErrorText(operation_, "the bytes end too early")
                          .fact("bytes left", std::to_string(bytes_.size()))
                          .help("pass them as they were written"));
  }

  const char* operation_;
  std::string_view bytes_;
};

}  // namespace sherd::detail
