// Gloo comes with libtorch, its headers do not: gloo_headers/ declares the few names that ProcessGroupGloo.hpp needs.
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/broken_pipes.h"
#include "comm/exchange.h"
#include "comm/own_address.h"
#include "comm/transports.h"

namespace sherd::detail {
namespace {

// Where the members' store is, "" where it is no TCP store.
std::string host_of_store(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  const auto plain =
      prefixed == nullptr ? store : dynamic_cast<c10d::PrefixStore&>(*store).getUnderlyingNonPrefixStore();
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(plain.get());
  return tcp == nullptr ? "" : tcp->getHost();
}

// The address at which the others reach this member: the one that leads to the store, since all came by the store. Left
// alone, Gloo looks up the host's name, which often stands for the loopback. "" where Gloo shall choose: the user names
// an interface, or there is no TCP store.
std::string address_for_others(const Meeting& meeting) {
  const char* chosen = std::getenv("GLOO_SOCKET_IFNAME");  // NOLINT(concurrency-mt-unsafe): read as Gloo does
  const std::string store = host_of_store(meeting.store);
  std::string mine = store.empty() || (chosen != nullptr && *chosen != '\0') ? "" : own_address_towards(store);
  // The host that keeps the store may reach it by the loopback. Then the way to somebody on another host counts.
  for (const std::string& other : exchange(meeting, "address", mine)) {
    if (!is_loopback(mine)) break;
    if (!other.empty() && !is_loopback(other)) mine = own_address_towards(other);
  }
  return mine;
}

}  // namespace

// All members connect to each other here. (Gloo can also connect two ranks when they first talk, but then a send waits
// until the other side does something with this rank, and programs whose sends come first wait for ever.)
c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting) {
  ignore_broken_pipes();
  using Gloo = c10d::ProcessGroupGloo;
  const std::string address = address_for_others(meeting);
  const auto options =
      address.empty() ? Gloo::Options::create_default(meeting.timeout) : Gloo::Options::create(meeting.timeout);
  if (!address.empty()) options->devices.push_back(Gloo::createDeviceForHostname(address));
  options->threads = 2;
  return c10::make_intrusive<Gloo>(meeting.store, meeting.rank, meeting.size, options);
}

}  // namespace sherd::detail
