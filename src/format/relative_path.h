#pragma once
// Names of files that stand in other files.

#include <string_view>

namespace sherd::format {

/// Whether a path stays inside of the folder that it is relative to, whatever the folder is: no empty part, "." or
/// "..".
inline bool is_inside(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    if (part.size() == path.size()) return true;
    path.remove_prefix(part.size() + 1);
  }
}

}  // namespace sherd::format
