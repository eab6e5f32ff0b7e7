#include "comm/own_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace sherd::detail {
namespace {

constexpr const char* kAnyPort = "9";

// Connecting a datagram socket chooses a route and an address, and sends nothing.
std::string own_address(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  const bool found = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                     ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                                   NI_NUMERICHOST) == 0;
  ::close(fd);
  return found ? text.data() : "";
}

}  // namespace

std::string own_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* targets = nullptr;
  if (::getaddrinfo(host.c_str(), kAnyPort, &hints, &targets) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(targets, ::freeaddrinfo);
  // Of a name with several addresses the IPv4 one is taken first: every rank then speaks the same protocol.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* target = targets; target != nullptr; target = target->ai_next) {
      if (target->ai_family != family) continue;
      if (std::string address = own_address(*target); !address.empty()) return address;
    }
  }
  return "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace sherd::detail
