#include "comm/watched_store.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace sherd::detail {
namespace {

// How often others are looked for, and failures. A wait with a short timeout would make torch warn each time.
constexpr std::chrono::milliseconds kSoonest(1);
constexpr std::chrono::milliseconds kLatest(50);
constexpr std::chrono::milliseconds kLook(500);

}  // namespace

std::vector<uint8_t> WatchedStore::get(const std::string& key) {
  wait({key}, getTimeout());
  return PrefixStore::get(key);
}

void WatchedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + timeout;
  auto next_look = Clock::now() + kLook;
  for (auto pause = kSoonest; !PrefixStore::check(keys); pause = std::min(2 * pause, kLatest)) {
    const auto now = Clock::now();
    if (now >= end) return PrefixStore::wait(keys, kSoonest);  // says what there is to say, or they have come
    if (now >= next_look) {
      look();
      next_look = now + kLook;
    }
    std::this_thread::sleep_for(pause);
  }
}

void WatchedStore::look() {
  // Where it was this one, the others do not come any more.
  if (const auto failure = link_->find_failure()) {
    throw std::runtime_error("rank " + std::to_string(failure->first) + " failed");
  }
}

}  // namespace sherd::detail
