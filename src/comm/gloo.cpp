// Gloo comes with libtorch, its headers do not: gloo_headers/ declares the few names that ProcessGroupGloo.hpp needs.
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/address_for_others.h"
#include "comm/broken_pipes.h"
#include "comm/transports.h"

namespace sherd::detail {

// All members connect to each other here. (Gloo can also connect two ranks when they first talk, but then a send waits
// until the other side does something with this rank, and programs whose sends come first wait for ever.)
c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting) {
  ignore_broken_pipes();
  using Gloo = c10d::ProcessGroupGloo;
  const char* chosen = std::getenv("GLOO_SOCKET_IFNAME");  // NOLINT(concurrency-mt-unsafe): read as Gloo does
  const std::string address = address_for_others(meeting, chosen != nullptr && *chosen != '\0');
  const auto options =
      address.empty() ? Gloo::Options::create_default(meeting.timeout) : Gloo::Options::create(meeting.timeout);
  if (!address.empty()) options->devices.push_back(Gloo::createDeviceForHostname(address));
  options->threads = 2;
  return c10::make_intrusive<Gloo>(meeting.store, meeting.rank, meeting.size, options);
}

}  // namespace sherd::detail
