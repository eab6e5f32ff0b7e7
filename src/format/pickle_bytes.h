#pragma once
// The bytes of single opcodes, to a text or to a count of them: who asks for a length pays for no text.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "format/pickle_opcodes.h"

namespace sherd::format {

/// Takes bytes and keeps their number.
struct ByteCount {
  int64_t count = 0;
  void push_back(char) { ++count; }
  void append(const char*, size_t size) { count += static_cast<int64_t>(size); }
};

template <class Out>
class PickleBytes {
 public:
  explicit PickleBytes(Out& out) : out_(out) {}

  void op(Op op) { out_.push_back(static_cast<char>(op)); }
  void byte(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  template <class T>
  void number(T value) {  // little endian, as the machines that this is built for
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }
  void raw(std::string_view bytes) { out_.append(bytes.data(), bytes.size()); }

  void integer(int64_t value) {
    if (value >= 0 && value < 0x100) {
      op(Op::binint1);
      byte(static_cast<uint8_t>(value));
    } else if (value >= 0 && value < 0x10000) {
      op(Op::binint2);
      number(static_cast<uint16_t>(value));
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      op(Op::binint);
      number(static_cast<int32_t>(value));
    } else {
      // As few bytes as keep the sign.
      int bytes = 8;
      while (value >> (8 * bytes - 9) == 0 || value >> (8 * bytes - 9) == -1) --bytes;
      op(Op::long1);
      byte(static_cast<uint8_t>(bytes));
      char text[8];
      std::memcpy(text, &value, 8);
      out_.append(text, static_cast<size_t>(bytes));
    }
  }

  void text(std::string_view value) {
    op(Op::binunicode);
    number(static_cast<uint32_t>(value.size()));
    raw(value);
  }

  void global(std::string_view module, std::string_view name) {
    op(Op::global);
    raw(module);
    out_.push_back('\n');
    raw(name);
    out_.push_back('\n');
  }

  void put(uint64_t index) {
    if (index < 0x100) {
      op(Op::binput);
      byte(static_cast<uint8_t>(index));
    } else {
      op(Op::long_binput);
      number(static_cast<uint32_t>(index));
    }
  }
  void get(uint64_t index) {
    if (index < 0x100) {
      op(Op::binget);
      byte(static_cast<uint8_t>(index));
    } else {
      op(Op::long_binget);
      number(static_cast<uint32_t>(index));
    }
  }

 private:
  Out& out_;
};

}  // namespace sherd::format
