#pragma once
// A thread beside a rank's own, for communication that goes on while the rank computes. It runs what it is given one
// after the other, in the order given, which is the same on every rank.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/observer.h"
#include "sherd/collectives.h"

namespace sherd::detail {

/// Something under way in the background.
class BackgroundTask {
 public:
  explicit BackgroundTask(std::function<void()> work);
  /// Returns when it is over; throws what it threw. The calls that it made are told to this thread's CommRecorder.
  void wait();
  bool is_over() const;

 private:
  friend class Background;
  void run();
  /// What it threw, once; null where wait() has told it.
  std::exception_ptr take_unheard();
  bool is_heard() const;

  std::function<void()> work_;
  std::shared_ptr<CommObserver> observer_;  // of the thread that gave the work
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  bool heard_ = false;
  std::exception_ptr error_;
  std::vector<CollectiveCall> calls_;
};

class Background {
 public:
  /// What to do, in its thread, where a task throws what the other ranks cannot know of; given the message.
  using OnFailure = std::function<void(const std::string&)>;
  explicit Background(OnFailure on_failure = {});
  /// Waits for what is under way.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  std::shared_ptr<BackgroundTask> start(std::function<void()> work);
  /// The same for one that was made before, maybe by another thread. Once for each.
  void start(std::shared_ptr<BackgroundTask> task);
  /// Returns when nothing is under way.
  void drain();
  /// The same; then the thread has ended, with all that it remembered. Another one is made where more is started.
  void stop();
  /// The thread ends when nothing is under way any more; nobody waits.
  void end();
  /// Throws the first error of a task that is over and that nobody waited for.
  void rethrow_unheard();

 private:
  // What the thread works with. It may outlive the rest: a task may be the last to hold the world.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<BackgroundTask>> waiting;
    std::vector<std::shared_ptr<BackgroundTask>> failed;
    OnFailure on_failure;
    std::thread::id thread;  // once it runs; known where nobody holds it, too
    bool busy = false;
    bool ends = false;

    void run();
    void note_failure(const std::shared_ptr<BackgroundTask>& task);
  };

  bool has_ended() const;
  void tell_end();

  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_;  // made when it is first needed
};

}  // namespace sherd::detail
