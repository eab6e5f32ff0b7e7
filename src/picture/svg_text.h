#pragma once
// Text in SVG, where nothing measures or wraps it for us.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "picture/escape.h"

namespace sherd::detail {

constexpr double kCharacterWidth = 7.25;  // of 12 pixels of a monospace font

inline int64_t text_width(std::string_view text) {
  return static_cast<int64_t>(kCharacterWidth * static_cast<double>(text.size()) + 0.999);
}
inline int64_t text_width(int64_t number) { return text_width(std::to_string(number)); }

inline std::string svg_text(int64_t x, int64_t y, std::string_view text, const char* anchor = "start",
                            const char* fill = "currentColor") {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y, anchor, fill,
                     escaped(text));
}

/// Lines of at most `width` pixels, broken at spaces; a word that is longer is broken where it must be.
std::vector<std::string> wrapped(std::string_view text, int64_t width);

}  // namespace sherd::detail
