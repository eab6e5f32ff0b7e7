#pragma once
// Bytes for the tests of formats: texts as bytes, and golden ones in hexadecimal digits.

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sherd::test {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string from_hex(std::string_view digits) {
  std::string text;
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    if (digits[i] == '\n') throw std::invalid_argument("from_hex: a line break");
    text.push_back(static_cast<char>(value(digits[i]) * 16 + value(digits[i + 1])));
  }
  return text;
}

/// What() of the std::invalid_argument that `call` throws; "nothing" where it throws none.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace sherd::test
