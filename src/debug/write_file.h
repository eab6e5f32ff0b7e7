#pragma once

#include <string>

namespace sherd::detail {

/// Writes a file anew. Returns 0, or the errno that says why it is not written whole.
int write_file(const std::string& path, const std::string& bytes);

}  // namespace sherd::detail
