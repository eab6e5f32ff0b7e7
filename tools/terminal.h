#pragma once
// What the command knows of the screen it writes to. In a pipe or a file: no colours, no limit of width.

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace sherd::tools {

bool is_terminal(std::FILE* stream);

/// Characters in a line; nothing where the stream is no terminal. COLUMNS wins over what the terminal says.
std::optional<int> width_of(std::FILE* stream);

/// On a terminal, unless NO_COLOR is set to anything (https://no-color.org) or TERM is "dumb".
bool has_color(std::FILE* stream);

enum class Style { plain, bold, dim, red, green, yellow, cyan };
/// The text in this style where `color`, else as it is.
std::string styled(std::string_view text, Style style, bool color);

/// Columns that a text takes: its characters, UTF-8 read as such, without escape sequences.
size_t columns_of(std::string_view text);
/// The text, or as much of it as fits with "…" in its place in the middle: both ends of a name tell something.
std::string shortened(std::string_view text, size_t columns);

}  // namespace sherd::tools
