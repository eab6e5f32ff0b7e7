#pragma once
// Ctrl-C and SIGTERM while something is written: the work ends where it next reports its progress, by an exception, so
// that drafts are discarded.

#include <exception>

namespace sherd::tools {

class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}
  const char* what() const noexcept override { return "interrupted"; }
  /// As shells count it: 130 after Ctrl-C.
  int exit_code() const { return 128 + signal_; }

 private:
  int signal_;
};

/// While it lives, the first signal is kept for throw_if_interrupted; the second ends the program as if there were
/// none. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

void throw_if_interrupted();

}  // namespace sherd::tools
