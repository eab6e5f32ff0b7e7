#include "comm/background.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "comm/errors.h"
#include "comm/recorder.h"
#include "sherd/blocking.h"

namespace sherd::detail {

namespace {

// What others cannot know of an error. Arguments that are refused are refused on every rank; a call that breaks is told
// to all that are in it.
std::optional<std::string> news_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::DistBackendError&) {
    return std::nullopt;
  } catch (const c10::ValueError&) {
    return std::nullopt;
  } catch (const c10::TypeError&) {
    return std::nullopt;
  } catch (const c10::IndexError&) {
    return std::nullopt;
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  } catch (...) {
    return message_of_current_exception();
  }
}

}  // namespace

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
    heard_ = true;
  }
  for (CollectiveCall& call : calls) record(std::move(call));
  if (error_) std::rethrow_exception(error_);
}

std::exception_ptr BackgroundTask::take_unheard() {
  const std::lock_guard lock(mutex_);
  return std::exchange(heard_, true) ? nullptr : error_;
}

bool BackgroundTask::is_heard() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

bool BackgroundTask::is_over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

Background::Background(OnFailure on_failure) { queue_->on_failure = std::move(on_failure); }

Background::~Background() {
  stop();
  end();  // the last one to hold the world may be a task of it, which does not wait for itself
  const std::lock_guard lock(queue_->mutex);
  queue_->on_failure = nullptr;  // whoever gave it ends here
}

std::shared_ptr<BackgroundTask> Background::start(std::function<void()> work) {
  auto task = std::make_shared<BackgroundTask>(std::move(work));
  start(task);
  return task;
}

void Background::start(std::shared_ptr<BackgroundTask> task) {
  if (has_ended()) {
    auto next = std::make_shared<Queue>();
    const std::lock_guard lock(queue_->mutex);
    next->failed.swap(queue_->failed);
    next->on_failure.swap(queue_->on_failure);
    queue_.swap(next);
  }
  const std::lock_guard lock(queue_->mutex);
  if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { queue->run(); });
  queue_->waiting.push_back(std::move(task));
  queue_->changed.notify_all();
}

void Background::drain() {
  const auto idle = [&] { return !queue_->busy && queue_->waiting.empty(); };
  {
    const std::lock_guard lock(queue_->mutex);
    if (idle() || queue_->thread == std::this_thread::get_id()) return;  // what is under way cannot wait for itself
  }
  const BlockingScope others_run;
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait(lock, idle);
}

void Background::stop() {
  drain();
  if (!thread_.joinable() || thread_.get_id() == std::this_thread::get_id()) return;
  tell_end();
  thread_.join();
}

void Background::end() {
  tell_end();
  if (thread_.joinable()) thread_.detach();
}

bool Background::has_ended() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->ends;
}

void Background::tell_end() {
  const std::lock_guard lock(queue_->mutex);
  queue_->ends = true;
  queue_->changed.notify_all();
}

void Background::rethrow_unheard() {
  std::vector<std::shared_ptr<BackgroundTask>> failed;
  {
    const std::lock_guard lock(queue_->mutex);
    failed.swap(queue_->failed);
  }
  std::exception_ptr first;
  for (const auto& task : failed) {
    const std::exception_ptr error = task->take_unheard();
    if (!first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

void Background::Queue::note_failure(const std::shared_ptr<BackgroundTask>& task) {
  OnFailure tell;
  {
    const std::lock_guard lock(mutex);
    tell = on_failure;
    std::erase_if(failed, [](const auto& earlier) { return earlier->is_heard(); });
    failed.push_back(task);
  }
  const auto news = news_of(task->error_);
  if (news && tell) tell(*news);
}

void Background::Queue::run() {
  {
    const std::lock_guard lock(mutex);
    thread = std::this_thread::get_id();
  }
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
    if (task->error_) note_failure(task);
    const std::lock_guard lock(mutex);
    busy = false;
    changed.notify_all();
  }
}

}  // namespace sherd::detail
