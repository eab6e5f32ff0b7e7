#include "debug/write_file.h"

#include <cerrno>
#include <cstdio>

namespace sherd::detail {

int write_file(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return errno;
  const int why = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() ? 0 : errno;
  if (std::fclose(file) != 0 && why == 0) return errno;
  return why;
}

}  // namespace sherd::detail
