#include "location.h"

#include <stdexcept>

#include "sherd/error.h"

namespace sherd::tools {

Location storage_for(const std::string& verb, const std::string& path) {
  constexpr std::string_view kS3 = "s3://";
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  if (plain.empty()) {
    throw std::invalid_argument(ErrorText(verb, "a path is empty").help("sherd " + verb + " --help"));
  }
  if (plain.starts_with(kS3)) {
    const size_t slash = plain.find('/', kS3.size());
    if (slash == std::string::npos || slash == kS3.size()) {
      throw std::invalid_argument(
          ErrorText(verb, "this is no path in an object store").fact("path", path).help("s3://BUCKET/KEY"));
    }
    return {s3_storage({.bucket = plain.substr(kS3.size(), slash - kS3.size())}), plain.substr(slash + 1)};
  }
  if (const size_t scheme = plain.find("://"); scheme != std::string::npos) {
    throw std::invalid_argument(ErrorText(verb, "no such kind of storage")
                                    .fact("path", path)
                                    .fact("kind", plain.substr(0, scheme))
                                    .help("a path of this machine, or s3://BUCKET/KEY"));
  }
  return {disk_storage(), plain};
}

}  // namespace sherd::tools
