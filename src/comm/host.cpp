#include "comm/host.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <map>

#include "comm/settings.h"

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

// Not by a stream: where this library carries a libstdc++ of its own beside torch's, the two disagree about locales.
std::string read_text(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string text(4096, '\0');
  const ssize_t length = ::read(file, text.data(), text.size());
  ::close(file);
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return text;
}

std::string host_key() {
  if (!settings().host.empty()) return "SHERD_HOST " + settings().host;
  std::string boot = read_text("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return boot + " " + name.data() + " " + name_space("net") + " " + name_space("pid");
}

Hosts Hosts::of(const std::vector<std::string>& keys) {
  Hosts hosts;
  std::map<std::string, int> numbers;
  for (size_t member = 0; member < keys.size(); ++member) {
    const int host = numbers.emplace(keys[member], static_cast<int>(hosts.size())).first->second;
    if (static_cast<size_t>(host) == hosts.size()) hosts.members.emplace_back();
    auto& beside = hosts.members[static_cast<size_t>(host)];
    hosts.host_of.push_back(host);
    hosts.place_of.push_back(static_cast<int>(beside.size()));
    beside.push_back(static_cast<int>(member));
  }
  return hosts;
}

}  // namespace sherd::detail
