#pragma once
// System calls of a disk that fail for a while.

#include <atomic>
#include <string>
#include <utility>

#include "storage/posix.h"

namespace sherd::testing {

/// Some calls fail while they are told to: opening and renaming what has a path that ends so. Nobody may call anything
/// while it is told.
class FaultyPosix final : public Posix {
 public:
  int rename(const std::string& from, const std::string& to) override {
    return error_ != 0 && from.ends_with(ending_) ? -error_ : Posix::rename(from, to);
  }
  int open(const std::string& path, int flags) override {
    return error_ != 0 && path.ends_with(ending_) ? -error_ : Posix::open(path, flags);
  }
  void fail(std::string ending, int error) {
    ending_ = std::move(ending);
    error_ = error;
  }
  void heal() { error_ = 0; }

 private:
  std::string ending_;
  std::atomic<int> error_ = 0;
};

}  // namespace sherd::testing
