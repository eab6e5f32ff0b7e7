#include "checkpoint/tell_all.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "comm/answers.h"
#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/overtime.h"
#include "sherd/collectives.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a rank tells the others besides what telling_of() makes.
constexpr char kNotYet = '.';          // and for how many milliseconds, and what it is at
constexpr const char* kStopped = "-";  // others have failed, and say why

struct Late {
  milliseconds since;
  std::string what;
};

std::string not_yet(const Late& late) { return fmt::format("{}{} {}", kNotYet, late.since.count(), late.what); }

std::optional<Late> parse_not_yet(const std::string& told) {
  if (told.front() != kNotYet) return std::nullopt;
  const size_t space = told.find(' ');
  return Late{milliseconds(std::stoll(told.substr(1, space - 1))), told.substr(space + 1)};
}

std::string seconds(milliseconds time) { return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000); }

}  // namespace

std::vector<std::string> tell_all(const char* operation, const Group& group, const std::function<std::string()>& say) {
  if (group.size() == 1) return {alone(say)};
  return answers_in(all_gather_text(group, telling_of(say)), group, operation, FailureKind::as_told);
}

void StillWanted::check() const {
  if (!given_up_) return;
  stopped_ = true;
  throw std::runtime_error("this rank stopped, since another one failed");
}

void StillWanted::at(std::string what) const {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

std::string StillWanted::what() const {
  const std::lock_guard lock(mutex_);
  return what_;
}

// The ranks meet in rounds, in which each tells how its work ended, or that it has not. Those that have ended wait in a
// round for the others, who come to it a quarter of the timeout after the last one at the latest.
class LongStep {
 public:
  LongStep(const char* operation, const Group& group, std::optional<milliseconds> give_up_after)
      : operation_(operation), group_(group), give_up_after_(give_up_after) {}

  std::vector<std::string> run(const std::function<std::string(const StillWanted&)>& work) {
    const std::string mine = work ? work_and_speak(work) : telling_of([] { return std::string(); });
    while (true) {
      std::vector<std::string> told = all_gather_text(group_, mine);
      if (std::ranges::none_of(told, [](const std::string& text) { return text.front() == kNotYet; })) return told;
      give_up_late_ones(told);
    }
  }

 private:
  // The work stays in the caller's thread, on whose settings it may depend; the other one only speaks.
  std::string work_and_speak(const std::function<std::string(const StillWanted&)>& work) {
    Overtime speaking(turn(), [this] { speak(); });
    std::string mine;
    {
      const auto end = [this](const void* /*nothing*/) { say_it_is_over(); };
      const std::unique_ptr<const LongStep, decltype(end)> ending(this, end);  // however it ends
      mine = telling_of([&] { return work(wanted_); });
    }
    speaking.end();
    if (wanted_.stopped_) mine = kStopped;
    return mine;
  }

  void speak() {
    try {
      do {
        const Late late{std::chrono::duration_cast<milliseconds>(Clock::now() - began_), wanted_.what()};
        const std::string rank = fmt::format("rank {}", group_.ranks()[static_cast<size_t>(group_.rank())]);
        if (late.since > group_.state().link().timeout) {
          log_once(fmt::format("{}: {} is still {} after {}; the others wait", operation_, rank, late.what,
                               seconds(late.since)));
        }
        const auto told = all_gather_text(group_, not_yet(late));
        if (std::any_of(told.begin(), told.end(), is_failure)) wanted_.given_up_ = true;
        give_up_late_ones(told);
      } while (!is_over_soon());
    } catch (...) {
      wanted_.given_up_ = true;
      throw;
    }
  }

  // All ranks see the same in a round, and throw or none does.
  void give_up_late_ones(const std::vector<std::string>& told) const {
    if (!give_up_after_) return;
    ErrorText text(operation_, "ranks are still at work, and the others have given them up");
    bool any = false;
    for (size_t i = 0; i < told.size(); ++i) {
      const std::string rank = fmt::format("rank {}", group_.ranks()[i]);
      if (is_failure(told[i])) text.fact(rank, told[i].substr(1));
      const auto late = parse_not_yet(told[i]);
      if (!late || late->since < *give_up_after_) continue;
      any = true;
      text.fact(rank, fmt::format("{} for {}", late->what, seconds(late->since)));
    }
    if (!any) return;
    throw_comm_error(text.fact("give_up_after", seconds(*give_up_after_))
                         .help("look at the storage of these ranks; what they have begun may still come to its end"));
  }

  void say_it_is_over() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  bool is_over_soon() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, turn(), [&] { return over_; });
  }

  // Those that wait must not give up between two rounds, whoever is late.
  milliseconds turn() const {
    const milliseconds quarter = group_.state().link().timeout / 4;
    return give_up_after_ ? std::clamp(*give_up_after_, std::min(milliseconds(1), quarter), quarter) : quarter;
  }

  const char* operation_;
  const Group& group_;
  std::optional<milliseconds> give_up_after_;
  const Clock::time_point began_ = Clock::now();
  StillWanted wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

std::vector<std::string> work_and_tell_all(const char* operation, const Group& group,
                                           const std::function<std::string(const StillWanted&)>& work,
                                           std::optional<milliseconds> give_up_after) {
  if (group.size() == 1) return {alone([&] { return work ? work(StillWanted()) : std::string(); })};
  return answers_in(LongStep(operation, group, give_up_after).run(work), group, operation, FailureKind::as_told);
}

std::string alone(const std::function<std::string()>& say) {
  try {
    return say();
  } catch (const c10::Error&) {
    throw;
  } catch (const std::invalid_argument& error) {
    throw_value_error_text(error.what());
  } catch (const std::exception& error) {
    throw c10::Error(error.what(), nullptr);
  }
}

}  // namespace sherd::detail
