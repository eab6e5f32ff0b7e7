#include "comm/overtime.h"

#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace sherd::detail {

using Clock = std::chrono::steady_clock;

class Overtime::Watch {
 public:
  explicit Watch(pid_t process) : process_(process) {
    std::thread([this] { run(); }).detach();
  }

  pid_t process() const { return process_; }

  void add(Clock::time_point due, Overtime& overtime) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(due, &overtime);
    if (due < wakes_) changed_.notify_one();
  }

  /// Whether it was waiting still.
  bool remove(const Overtime& overtime) {
    const std::lock_guard lock(mutex_);
    return std::erase_if(waiting_, [&](const auto& entry) { return entry.second == &overtime; }) > 0;
  }

 private:
  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      // It sleeps on when the one it was to wake for is gone: the next one comes later, most often.
      wakes_ = waiting_.empty() ? Clock::time_point::max() : waiting_.begin()->first;
      if (waiting_.empty()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, wakes_);
      }
      while (!waiting_.empty() && waiting_.begin()->first <= Clock::now()) {
        waiting_.extract(waiting_.begin()).mapped()->begin();
      }
    }
  }

  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, Overtime*> waiting_;
  Clock::time_point wakes_ = Clock::time_point::min();
};

// Never freed: its thread runs as long as the process does. A process that was forked off has none of it.
Overtime::Watch& Overtime::watch() {
  static std::mutex mutex;
  static Watch* watch = nullptr;
  const std::lock_guard lock(mutex);
  if (watch == nullptr || watch->process() != ::getpid()) watch = new Watch(::getpid());
  return *watch;
}

Overtime::Overtime(std::chrono::milliseconds after, std::function<void()> task)
    : task_(std::make_shared<BackgroundTask>(std::move(task))) {
  try {
    watch_ = &watch();
  } catch (const std::system_error&) {
    return;  // no thread is to be had
  }
  watch_->add(Clock::now() + after, *this);
}

Overtime::~Overtime() {
  if (watch_ != nullptr) watch_->remove(*this);
}

void Overtime::end() {
  if (watch_ == nullptr) return;
  const bool waits_still = std::exchange(watch_, nullptr)->remove(*this);
  if (!waits_still && task_) task_->wait();
}

void Overtime::begin() {
  try {
    thread_.start(task_);
  } catch (const std::system_error&) {
    task_.reset();  // no thread is to be had
  }
}

}  // namespace sherd::detail
