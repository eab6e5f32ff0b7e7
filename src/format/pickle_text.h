#pragma once
// Texts as the pickles of protocol 0 write them, and what counts as text.

#include <optional>
#include <string>
#include <string_view>

namespace sherd::format {

/// Whether these bytes are UTF-8. Python also writes lone surrogates, as three bytes, so that they count, too.
bool is_utf8(std::string_view bytes);

/// "'it\\'s \\x41'" to "it's A"; nothing where the quotes are wrong or an escape is cut off.
std::optional<std::string> parse_quoted(std::string_view line);

/// Python's raw-unicode-escape to UTF-8: Latin-1 bytes, and \uXXXX, \UXXXXXXXX.
std::optional<std::string> parse_raw_unicode(std::string_view line);

/// A decimal int of any size as two's complement, little endian, without redundant bytes. Nothing where it is no
/// number. The cost grows with the square of the digits: bound them.
std::optional<std::string> parse_decimal(std::string_view digits);

}  // namespace sherd::format
