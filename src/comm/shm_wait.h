#pragma once
// Waiting for a number in shared memory: a moment of polling, then sleep in the kernel.

#include <atomic>
#include <cstdint>
#include <functional>

namespace sherd::detail {

/// A number that one rank raises and others wait for. It lies in memory that processes share, zero at first, and may
/// pass its largest value.
struct alignas(64) ShmSignal {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  bool reached(uint32_t least) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - least) >= 0;
  }
  /// What was written before is seen by those who see the number.
  void raise(uint32_t to);
  /// Wakes those who sleep, so that they look around.
  void nudge() const;
};

/// How long to poll before sleeping. Between the polls a rank gives its core away: on a busy machine two ranks may
/// share one though there are enough, and the one that is waited for must run. Ranks that outnumber the cores do so
/// sooner.
struct Patience {
  int polls = 0;   // before the core is given away
  int yields = 0;  // times that it is

  static Patience of(int ranks);
};

/// Polls for as long as the patience lasts; returns whether it is done.
bool poll(Patience patience, const std::function<bool()>& done);

/// Returns when the signal has reached `least`. `look_around` is called every now and then (some 50 ms) and when
/// somebody nudges; it may throw.
void wait_for(ShmSignal& signal, uint32_t least, Patience patience, const std::function<void()>& look_around);

}  // namespace sherd::detail
