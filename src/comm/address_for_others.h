#pragma once

#include <string>

#include "comm/transports.h"

namespace sherd::detail {

/// The address at which the other members reach this one: the one that leads to the store, since all came by the store.
/// Left alone, Gloo and TensorPipe look up the host's name, which often stands for the loopback. All members call it.
/// "" where the transport shall choose: the user names an interface for it, `is_chosen`, or there is no TCP store.
std::string address_for_others(const Meeting& meeting, bool is_chosen);

}  // namespace sherd::detail
