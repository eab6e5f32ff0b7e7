#include "comm/broken_pipes.h"

#include <csignal>

namespace sherd::detail {

void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace sherd::detail
