#include "tensor/switches.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "comm/errors.h"
#include "comm/settings.h"
#include "rules/registry.h"

namespace sherd {
namespace {

thread_local ExplicitRedistribution::Mode mode = ExplicitRedistribution::Mode::allow;
std::atomic<int> strict_choice{-1};  // -1: as the environment says

void say_once(const std::string& about, const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said->insert(about).second) std::fprintf(stderr, "sherd: %s\n", text.c_str());
}

}  // namespace

ExplicitRedistribution::ExplicitRedistribution(Mode wanted) : outer_(std::exchange(mode, wanted)) {}
ExplicitRedistribution::~ExplicitRedistribution() { mode = outer_; }

void set_strict(bool on) {
  if (strict_choice.exchange(on ? 1 : 0) != (on ? 1 : 0)) rules::outdate_plans();  // made while it was otherwise
}

namespace detail {

bool strict() {
  const int choice = strict_choice.load(std::memory_order_relaxed);
  return choice == -1 ? settings().strict : choice == 1;
}

ExplicitRedistribution::Mode redistribution_mode() { return mode; }

void refuse_or_warn(const ErrorText& text) {
  if (mode == ExplicitRedistribution::Mode::error) throw_value_error(text);
  say_once(text, text);
}

ErrorText would_move(std::string_view operation, const std::vector<std::pair<std::string, std::string>>& facts,
                     const std::string& instead) {
  ErrorText text(operation, "would move data by itself");
  for (const auto& [name, value] : facts) text.fact(name, value);
  return text.help(instead + ", or leave the ExplicitRedistribution scope");
}

void log_once(const std::string& about, const std::string& text) {
  if (!settings().log.empty()) say_once(about, text);
}
void log_once(const std::string& text) { log_once(text, text); }

}  // namespace detail
}  // namespace sherd
