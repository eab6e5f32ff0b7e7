#include "checkpoint/tell_all.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "comm/answers.h"
#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/overtime.h"
#include "sherd/collectives.h"

namespace sherd::detail {
namespace {

// What a rank tells the others besides what telling_of() makes.
constexpr const char* kNotYet = ".";
constexpr const char* kStopped = "-";  // others have failed, and say why

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

// The ranks meet in rounds, in which each tells how its work ended, or that it has not. Those that have ended wait in a
// round for the others, who come to it a quarter of the timeout after the last one at the latest.
class LongStep {
 public:
  explicit LongStep(const Group& group) : group_(group) {}

  std::vector<std::string> run(const std::function<std::string(const StillWanted&)>& work) {
    const std::string mine = work ? work_and_speak(work) : telling_of([] { return std::string(); });
    while (true) {
      std::vector<std::string> told = all_gather_text(group_, mine);
      if (std::find(told.begin(), told.end(), kNotYet) == told.end()) return told;
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
        const auto told = all_gather_text(group_, kNotYet);
        if (std::any_of(told.begin(), told.end(), is_failure)) wanted_.given_up_ = true;
      } while (!is_over_soon());
    } catch (...) {
      wanted_.given_up_ = true;
      throw;
    }
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
  std::chrono::milliseconds turn() const { return group_.state().link().timeout / 4; }

  const Group& group_;
  StillWanted wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

std::vector<std::string> work_and_tell_all(const char* operation, const Group& group,
                                           const std::function<std::string(const StillWanted&)>& work) {
  if (group.size() == 1) return {alone([&] { return work ? work(StillWanted()) : std::string(); })};
  return answers_in(LongStep(group).run(work), group, operation, FailureKind::as_told);
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
