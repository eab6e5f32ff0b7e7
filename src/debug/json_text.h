#pragma once
// JSON is written by hand: a few objects of a fixed form.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace sherd::detail {

/// With its quotes.
inline std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      result += c;
    }
  }
  return result + '"';
}

inline std::string json_list(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (const std::string& text : texts) result += (result.size() > 1 ? ", " : "") + json_text(text);
  return result + "]";
}

}  // namespace sherd::detail
