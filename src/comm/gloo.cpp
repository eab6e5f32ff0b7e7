// Gloo comes with libtorch, its headers do not: gloo_headers/ declares the few names that ProcessGroupGloo.hpp needs.
#include <csignal>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/transports.h"

namespace sherd::detail {
namespace {

// Gloo writes to its sockets without MSG_NOSIGNAL: a rank that is gone would end this process by a signal instead of
// an error. Python ignores that signal from the start; a program that has no handler of its own gets the same here.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

// All members connect to each other here. (Gloo can also connect two ranks when they first talk, but then a send waits
// until the other side does something with this rank, and programs whose sends come first wait for ever.)
c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting) {
  ignore_broken_pipes();
  auto options = c10d::ProcessGroupGloo::Options::create_default(meeting.timeout);
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.store, meeting.rank, meeting.size, options);
}

}  // namespace sherd::detail
