#include "name_filter.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::tools {

bool NameFilter::operator()(const std::string& name) const {
  return patterns_.empty() || std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
           return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
         });
}

void NameFilter::refuse(const std::string& verb, const std::string& checkpoint) const {
  throw std::invalid_argument(ErrorText(verb, "no name matches")
                                  .fact("checkpoint", checkpoint)
                                  .fact("pattern", fmt::format("{}", fmt::join(patterns_, ", ")))
                                  .help("sherd inspect --names " + checkpoint));
}

std::string count_text(int64_t count) {
  std::string text = std::to_string(count);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

std::string counted(int64_t count, const std::string& noun) {
  return count_text(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace sherd::tools
