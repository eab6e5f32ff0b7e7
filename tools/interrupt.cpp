#include "interrupt.h"

#include <signal.h>

#include <atomic>
#include <iterator>
#include <utility>

namespace sherd::tools {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // a handler stores it
struct sigaction before[std::size(kSignals)];

void receive(int signal) { received = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  struct sigaction action {};
  action.sa_handler = receive;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &action, &before[i]);
    // What a shell made deaf, for a job in the background, stays so.
    if (before[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &before[i], nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
}

void throw_if_interrupted() {
  if (const int signal = received; signal != 0) throw Interrupted(signal);
}

}  // namespace sherd::tools
