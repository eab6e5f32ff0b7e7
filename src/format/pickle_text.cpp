#include "format/pickle_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <vector>

#include "format/negate.h"

namespace sherd::format {
namespace {

std::optional<uint32_t> parse_digits(std::string_view text, int base) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto* const end = at + bytes.size();
  while (at < end) {
    if (end - at >= 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, at, sizeof(eight));
      if ((eight & 0x8080808080808080U) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char first = *at++;
    if (first < 0x80) continue;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < more) return false;
    // The second byte says whether the form is the shortest one and the code below 0x110000.
    if ((first == 0xE0 && at[0] < 0xA0) || (first == 0xF0 && at[0] < 0x90) || (first == 0xF4 && at[0] > 0x8F))
      return false;
    for (int i = 0; i < more; ++i) {
      if ((*at++ & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

std::optional<std::string> parse_quoted(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"'))
    return std::nullopt;
  line = line.substr(1, line.size() - 2);
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      text.push_back(line[i]);
      continue;
    }
    if (++i == line.size()) return std::nullopt;
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const size_t letter = kLetters.find(line[i]);
    if (letter != std::string_view::npos) {
      text.push_back(kMeanings[letter]);
    } else if (line[i] == 'x') {
      const auto code = parse_digits(line.substr(i + 1, 2), 16);
      if (!code || i + 2 >= line.size()) return std::nullopt;
      text.push_back(static_cast<char>(*code));
      i += 2;
    } else if (line[i] >= '0' && line[i] <= '7') {
      size_t count = 1;
      while (count < 3 && i + count < line.size() && line[i + count] >= '0' && line[i + count] <= '7') ++count;
      text.push_back(static_cast<char>(*parse_digits(line.substr(i, count), 8)));
      i += count - 1;
    } else {
      text.push_back('\\');
      text.push_back(line[i]);
    }
  }
  return text;
}

std::optional<std::string> parse_raw_unicode(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const size_t digits = line.substr(i, 2) == "\\u" ? 4 : line.substr(i, 2) == "\\U" ? 8 : 0;
    if (digits == 0) {
      append_utf8(text, static_cast<unsigned char>(line[i]));
      continue;
    }
    const auto code = parse_digits(line.substr(i + 2, digits), 16);
    if (!code || i + 1 + digits >= line.size() || *code > 0x10FFFF) return std::nullopt;
    append_utf8(text, *code);
    i += 1 + digits;
  }
  return text;
}

std::optional<std::string> parse_decimal(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::vector<uint8_t> magnitude;  // little endian
  for (const char digit : digits) {
    uint32_t carry = static_cast<uint32_t>(digit - '0');
    for (uint8_t& byte : magnitude) {
      carry += byte * 10U;
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    if (carry > 0) magnitude.push_back(static_cast<uint8_t>(carry));
  }
  magnitude.push_back(0);  // room for the sign
  if (negative) negate(magnitude);
  const auto redundant = [&] {
    const size_t n = magnitude.size();
    return n > 1 && ((magnitude[n - 1] == 0 && magnitude[n - 2] < 0x80) ||
                     (magnitude[n - 1] == 0xFF && magnitude[n - 2] >= 0x80));
  };
  while (redundant()) magnitude.pop_back();
  return std::string(magnitude.begin(), magnitude.end());
}

}  // namespace sherd::format
