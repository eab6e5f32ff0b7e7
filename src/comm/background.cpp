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
  std::vector<CollectiveCall> calls;  // told once, to who comes first
  {
    const BlockingScope others_run;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
    calls.swap(calls_);
  }
  for (CollectiveCall& call : calls) record(std::move(call));
  if (error_) std::rethrow_exception(error_);
}

bool BackgroundTask::is_over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

Background::~Background() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->ends = true;
    queue_->changed.notify_all();
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
  const std::lock_guard lock(queue_->mutex);
  if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { queue->run(); });
  queue_->waiting.push_back(std::move(task));
  queue_->changed.notify_all();
}

void Background::drain() {
  const auto idle = [&] { return !queue_->busy && queue_->waiting.empty(); };
  {
    const std::lock_guard lock(queue_->mutex);
    if (idle()) return;
  }
  const BlockingScope others_run;
  std::unique_lock lock(queue_->mutex);
  if (thread_.get_id() == std::this_thread::get_id()) return;  // what is under way cannot wait for itself
  queue_->changed.wait(lock, idle);
}

void Background::Queue::run() {
  while (true) {
    std::shared_ptr<BackgroundTask> task;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return ends || !waiting.empty(); });
      if (waiting.empty()) return;
      task = std::move(waiting.front());
      waiting.pop_front();
      busy = true;
    }
    task->run();
    const std::lock_guard lock(mutex);
    busy = false;
    changed.notify_all();
  }
}

}  // namespace sherd::detail
