#include "comm/watched_store.h"

#include <algorithm>
#include <stdexcept>

namespace sherd::detail {
namespace {

constexpr std::chrono::milliseconds kLook(500);

}  // namespace

std::vector<uint8_t> WatchedStore::get(const std::string& key) {
  wait({key}, getTimeout());
  return PrefixStore::get(key);
}

void WatchedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    try {
      return PrefixStore::wait(keys, std::clamp(left, std::chrono::milliseconds(1), kLook));
    } catch (const std::exception&) {
      if (left <= kLook) throw;
    }
    look();
  }
}

void WatchedStore::look() {
  const auto failure = link_->find_failure();
  if (failure && failure->first != link_->rank) {
    throw std::runtime_error("rank " + std::to_string(failure->first) + " failed");
  }
}

}  // namespace sherd::detail
