#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "picture/terminal_color.h"

namespace sherd::tools {
namespace {

constexpr int kNarrowest = 20;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

const char* code_of(Style style) {
  switch (style) {
    case Style::bold:
      return "1";
    case Style::dim:
      return "2";
    case Style::red:
      return "31";
    case Style::green:
      return "32";
    case Style::yellow:
      return "33";
    case Style::cyan:
      return "36";
    case Style::plain:
      break;
  }
  return "0";
}

}  // namespace

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) != 0; }

std::optional<int> width_of(std::FILE* stream) {
  if (!is_terminal(stream)) return std::nullopt;
  int width = 0;
  if (const char* text = std::getenv("COLUMNS"); text != nullptr) {
    const std::string_view columns = text;
    std::from_chars(columns.data(), columns.data() + columns.size(), width);
  }
  winsize size{};
  if (width <= 0 && ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0) width = size.ws_col;
  if (width <= 0) width = 80;
  return std::max(width, kNarrowest);
}

bool has_color(std::FILE* stream) { return detail::has_color(stream); }

std::string styled(std::string_view text, Style style, bool color) {
  if (!color || style == Style::plain || text.empty()) return std::string(text);
  return std::string("\033[").append(code_of(style)).append("m").append(text).append("\033[0m");
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = text.find('m', i);
      if (i == std::string_view::npos) break;
    } else if (!is_continuation(text[i])) {
      ++columns;
    }
  }
  return columns;
}

std::string shortened(std::string_view text, size_t columns) {
  std::vector<size_t> starts;  // of its characters
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_continuation(text[i])) starts.push_back(i);
  }
  if (starts.size() <= columns) return std::string(text);
  if (columns < 2) return "…";
  const size_t tail = (columns - 1) / 2;
  const size_t head = columns - 1 - tail;
  std::string out(text.substr(0, starts[head]));
  out += "…";
  if (tail > 0) out += text.substr(starts[starts.size() - tail]);
  return out;
}

}  // namespace sherd::tools
