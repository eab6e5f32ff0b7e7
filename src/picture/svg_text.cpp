#include "picture/svg_text.h"

#include <algorithm>

namespace sherd::detail {

std::vector<std::string> wrapped(std::string_view text, int64_t width) {
  const auto fits = static_cast<size_t>(std::max(4.0, static_cast<double>(width) / kCharacterWidth));
  std::vector<std::string> lines;
  while (text.size() > fits) {
    size_t cut = text.rfind(' ', fits);
    const bool at_space = cut != std::string_view::npos && cut > 0;
    if (!at_space) {
      cut = fits;
      while (cut > 1 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;  // not inside a character
    }
    lines.emplace_back(text.substr(0, cut));
    text.remove_prefix(cut + (at_space ? 1 : 0));
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace sherd::detail
