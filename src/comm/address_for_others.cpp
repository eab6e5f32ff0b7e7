#include "comm/address_for_others.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/exchange.h"
#include "comm/own_address.h"

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

}  // namespace

std::string address_for_others(const Meeting& meeting, bool is_chosen) {
  const std::string store = host_of_store(meeting.store);
  std::string mine = store.empty() || is_chosen ? "" : own_address_towards(store);
  // The host that keeps the store may reach it by the loopback. Then the way to somebody on another host counts.
  for (const std::string& other : exchange(meeting, "address", mine)) {
    if (!is_loopback(mine)) break;
    if (!other.empty() && !is_loopback(other)) mine = own_address_towards(other);
  }
  return mine;
}

}  // namespace sherd::detail
