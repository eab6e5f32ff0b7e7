#pragma once
// How far a verb has come, on a terminal; and its way to be interrupted, everywhere.

#include <chrono>
#include <mutex>
#include <string>

#include "interrupt.h"
#include "sherd/progress.h"

namespace sherd::tools {

/// "verify  [#####     ]  45 %  1.2 GiB of 2.6 GiB  1.1 GiB/s  0:12 left" on standard error where that is a terminal,
/// at most ten times a second, from a tenth of a second on. Cleared when it ends. Make it before anything that a Ctrl-C
/// must not leave half written.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// For the library's options; throws Interrupted after Ctrl-C. Not to be called after this has ended.
  Progress callback();

 private:
  using Clock = std::chrono::steady_clock;
  void report(int64_t done, int64_t total);
  void draw(int64_t done, int64_t total, double seconds);

  InterruptGuard guard_;
  std::string title_;
  bool shown_;
  std::mutex mutex_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  bool drawn_once_ = false;
};

}  // namespace sherd::tools
