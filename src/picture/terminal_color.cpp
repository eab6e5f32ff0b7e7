#include "picture/terminal_color.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace sherd::detail {

bool has_color(std::FILE* stream) {
  const char* none = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  return ::isatty(::fileno(stream)) != 0 && (none == nullptr || *none == '\0') && !dumb;
}

}  // namespace sherd::detail
