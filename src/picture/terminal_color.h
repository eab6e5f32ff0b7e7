#pragma once

#include <cstdio>

namespace sherd::detail {

/// Whether a stream is a terminal that wants colours: unless NO_COLOR is set to anything (https://no-color.org) or TERM
/// is "dumb".
bool has_color(std::FILE* stream);

}  // namespace sherd::detail
