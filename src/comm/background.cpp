#include "comm/background.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "comm/recorder.h"
#include "sherd/blocking.h"

namespace sherd::detail {

BackgroundTask::BackgroundTask(std::function<void()> work) : work_(std::move(work)) {
  if (CommObserver* observer = comm_observer()) observer_ = observer->in_background();
}

void BackgroundTask::run() {
  const std::shared_ptr<CommObserver> observer = std::exchange(observer_, nullptr);
  set_comm_observer(observer.get());
  try {
    const CommRecorder recorder;
    const c10::NoGradGuard no_grad;
    std::exchange(work_, nullptr)();
    calls_ = recorder.calls();
  } catch (...) {
    error_ = std::current_exception();
  }
  set_comm_observer(nullptr);
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

void BackgroundTask::wait() {
  {
    const BlockingScope others_run;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
  }
  for (CollectiveCall& call : std::exchange(calls_, {})) record(std::move(call));
  if (error_) std::rethrow_exception(error_);
}

bool BackgroundTask::is_over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (!thread_.joinable()) return;
  // The last one to hold the world may be a task of it.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

std::shared_ptr<BackgroundTask> Background::start(std::function<void()> work) {
  auto task = std::make_shared<BackgroundTask>(std::move(work));
  start(task);
  return task;
}

void Background::start(std::shared_ptr<BackgroundTask> task) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  waiting_.push_back(std::move(task));
  changed_.notify_all();
}

void Background::drain() {
  {
    const std::lock_guard lock(mutex_);
    if (!busy_ && waiting_.empty()) return;
  }
  const BlockingScope others_run;
  std::unique_lock lock(mutex_);
  if (thread_.get_id() == std::this_thread::get_id()) return;  // what is under way cannot wait for itself
  changed_.wait(lock, [&] { return !busy_ && waiting_.empty(); });
}

void Background::run() {
  while (true) {
    std::shared_ptr<BackgroundTask> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
    }
    task->run();
    const std::lock_guard lock(mutex_);
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace sherd::detail
