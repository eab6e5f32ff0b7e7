#pragma once
#include <mutex>

#include "sherd/progress.h"

namespace sherd::stored {

/// Adds up what several threads have done, and reports it, one at a time.
class ProgressCount {
 public:
  ProgressCount(const Progress& progress, int64_t total) : progress_(progress), total_(total) {}
  void add(int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }
  int64_t done() const { return done_; }

 private:
  const Progress& progress_;
  int64_t total_;
  std::mutex mutex_;
  int64_t done_ = 0;
};

}  // namespace sherd::stored
