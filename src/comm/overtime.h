#pragma once
// Something to be done beside work that takes longer than expected. Where it does not, no thread is started and none is
// woken, as a rule: all that wait for their time are watched by one thread of the process.

#include <chrono>
#include <functional>
#include <memory>

#include "comm/background.h"

namespace sherd::detail {

class Overtime {
 public:
  /// Runs `task` in a thread of its own when this much time has passed, unless end() comes before. Observers of this
  /// thread see what it communicates. Where no thread is to be had, it is not run.
  Overtime(std::chrono::milliseconds after, std::function<void()> task);
  /// As end(), but for what the task throws.
  ~Overtime();
  Overtime(const Overtime&) = delete;
  Overtime& operator=(const Overtime&) = delete;

  /// The work is over. Returns when the task is, too, where it was begun, and throws what it threw.
  void end();

 private:
  class Watch;
  static Watch& watch();
  void begin();  // by the thread that watches

  std::shared_ptr<BackgroundTask> task_;
  Background thread_;
  Watch* watch_ = nullptr;  // null where nothing is to be begun, and once it has ended
};

}  // namespace sherd::detail
