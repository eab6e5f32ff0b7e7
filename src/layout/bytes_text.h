#pragma once

#include <string>

namespace sherd::detail {

/// "12 B", "4.0 KiB", "1.5 MiB".
std::string bytes_text(double bytes);

}  // namespace sherd::detail
