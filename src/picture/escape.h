#pragma once
#include <string>
#include <string_view>

namespace sherd::detail {

/// Text as it stands in XML and HTML, in attributes too. Characters that XML forbids become U+FFFD.
inline std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
          safe += "\xef\xbf\xbd";
        else
          safe += c;
    }
  }
  return safe;
}

}  // namespace sherd::detail
