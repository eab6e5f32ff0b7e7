#include "comm/shm_wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <thread>

namespace sherd::detail {
namespace {

constexpr timespec kSlice{.tv_sec = 0, .tv_nsec = 50'000'000};

// The kernel compares the word with `seen` and sleeps in one step, so that no wake is lost. Not FUTEX_PRIVATE: the
// waker is another process.
void sleep_while(const std::atomic<uint32_t>& word, uint32_t seen) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kSlice, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

static_assert(std::atomic<uint32_t>::is_always_lock_free);

void ShmSignal::raise(uint32_t to) {
  value.store(to, std::memory_order_release);
  // The sleepers are read after the store is out: one who counts itself after this read sees the new value.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_relaxed) > 0) nudge();
}

void ShmSignal::nudge() const { ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

Patience Patience::of(int ranks) {
  static const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return ranks <= cores ? Patience{.polls = 100, .yields = 40} : Patience{.polls = 20, .yields = 40};
}

bool poll(Patience patience, const std::function<bool()>& done) {
  for (int y = 0; y < patience.yields; ++y) {
    for (int i = 0; i < patience.polls; ++i) {
      if (done()) return true;
      pause();
    }
    ::sched_yield();
  }
  return done();
}

void wait_for(ShmSignal& signal, uint32_t least, Patience patience, const std::function<void()>& look_around) {
  if (poll(patience, [&] { return signal.reached(least); })) return;
  while (!signal.reached(least)) {
    signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = signal.value.load(std::memory_order_seq_cst);
    if (!signal.reached(least)) sleep_while(signal.value, seen);
    signal.sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (signal.reached(least)) return;
    look_around();
  }
}

}  // namespace sherd::detail
