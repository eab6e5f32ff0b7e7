#include "comm/host.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace sherd::detail {
namespace {

// "net:[4026531840]", or "" where the system does not say.
std::string name_space(const char* kind) {
  std::array<char, 64> text{};
  const std::string path = std::string("/proc/self/ns/") + kind;
  const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
  return length < 0 ? "" : std::string(text.data(), static_cast<size_t>(length));
}

}  // namespace

std::string host_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return boot + " " + name.data() + " " + name_space("net") + " " + name_space("pid");
}

}  // namespace sherd::detail
