#include "tensor/switches.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "comm/settings.h"

namespace sherd {
namespace {

thread_local ExplicitRedistribution::Mode mode = ExplicitRedistribution::Mode::allow;
std::atomic<int> strict_choice{-1};  // -1: as the environment says

}  // namespace

ExplicitRedistribution::ExplicitRedistribution(Mode wanted) : outer_(std::exchange(mode, wanted)) {}
ExplicitRedistribution::~ExplicitRedistribution() { mode = outer_; }

void set_strict(bool on) { strict_choice = on ? 1 : 0; }

namespace detail {

bool strict() {
  const int choice = strict_choice.load(std::memory_order_relaxed);
  return choice == -1 ? settings().strict : choice == 1;
}

ExplicitRedistribution::Mode redistribution_mode() { return mode; }

void log_once(const std::string& text) {
  if (settings().log.empty()) return;
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said->insert(text).second) std::fprintf(stderr, "sherd: %s\n", text.c_str());
}

}  // namespace detail
}  // namespace sherd
