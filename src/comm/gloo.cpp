// Gloo comes with libtorch, its headers do not: gloo_headers/ declares the few names that ProcessGroupGloo.hpp needs.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "comm/transports.h"

namespace sherd::detail {
namespace {

// Gloo writes to its sockets without MSG_NOSIGNAL: a rank that is gone would end this process by a signal instead of
// an error. Python ignores that signal from the start; a program that has no handler of its own gets the same here.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

// The network interfaces that torch's users name, or the one that the host's name belongs to. Connections are made when
// two ranks first talk: making a group waits for nobody, and a message concerns the two ranks alone.
std::vector<std::shared_ptr<gloo::transport::Device>> devices() {
  using c10d::ProcessGroupGloo;
  const char* names = std::getenv("GLOO_SOCKET_IFNAME");  // NOLINT(concurrency-mt-unsafe)
  if (names == nullptr || *names == '\0') return {ProcessGroupGloo::createDefaultDevice(/*lazyInit=*/true)};
  std::vector<std::shared_ptr<gloo::transport::Device>> result;
  std::istringstream stream{std::string(names)};
  for (std::string name; std::getline(stream, name, ',');) {
    result.push_back(ProcessGroupGloo::createDeviceForInterface(name, /*lazyInit=*/true));
  }
  return result;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting) {
  ignore_broken_pipes();
  auto options = c10d::ProcessGroupGloo::Options::create(meeting.timeout);
  options->devices = devices();
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.store, meeting.rank, meeting.size, options);
}

}  // namespace sherd::detail
