#pragma once
// By which of its addresses this host is reached.

#include <string>

namespace sherd::detail {

/// The address from which this host would talk to another: the one that the other can answer to. "" where there is no
/// way to it. Nothing is sent.
std::string own_address_towards(const std::string& host);

/// True for an address by which a host reaches itself alone.
bool is_loopback(const std::string& address);

}  // namespace sherd::detail
