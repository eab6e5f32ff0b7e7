#include "checkpoint/listed.h"

#include <fmt/format.h>

namespace sherd {

std::string detail::listed(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) text += fmt::format(", and {} more", names.size() - most);
  return names.empty() ? "none" : text;
}

}  // namespace sherd
