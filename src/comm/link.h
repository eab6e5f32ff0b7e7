#pragma once
// What joins a rank to the others of its world: the store they share, and how a failure reaches them.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "comm/thread_hub.h"

namespace sherd::detail {

/// What this rank knows of things that went wrong. All methods may be called from any thread.
class Trouble {
 public:
  /// Something did; `lost` ranks are not there any more.
  void add(const std::vector<int64_t>& lost = {}) {
    const std::lock_guard lock(mutex_);
    any_ = true;
    lost_.insert(lost.begin(), lost.end());
  }
  bool any() const {
    const std::lock_guard lock(mutex_);
    return any_;
  }
  bool lost(int64_t rank) const {
    const std::lock_guard lock(mutex_);
    return lost_.count(rank) > 0;
  }

 private:
  mutable std::mutex mutex_;
  bool any_ = false;
  std::set<int64_t> lost_;
};

struct Link {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::chrono::milliseconds timeout{0};
  bool check = false;
  c10::intrusive_ptr<c10d::Store> store;  // null in a fake world
  std::shared_ptr<ThreadHubs> hubs;       // where the ranks are threads of one process
  bool keeps_store = false;               // the store dies with this process
  std::shared_ptr<Trouble> trouble = std::make_shared<Trouble>();

  /// Leaves the message where the other ranks look when something goes wrong. The first one counts.
  void post_failure(const std::string& message) const;
  /// The rank that failed and its message, if any.
  std::optional<std::pair<int64_t, std::string>> find_failure() const;
  /// Tells the others that this rank makes no more calls.
  void post_end() const;
  /// Tells the rank that keeps the store that this one needs it no more.
  void post_done() const;
  /// Called where the store is about to die with this process: waits until the others need it no more. A moment at
  /// most where something went wrong, else the timeout.
  void wait_until_done() const;

  /// Called by a rank whose transport broke, `cause` being what it said: waits a moment for what the others say and
  /// returns the whole error text for `operation` on the group of `ranks`.
  std::string explain_broken_call(const char* operation, const std::vector<int64_t>& ranks, const std::string& group,
                                  const std::string& cause) const;
  /// Called by a rank that asked another for something and got no answer, `cause` being what the wire said: waits a
  /// moment for what the other says and returns the whole error text for `operation`. `waited`: nothing broke, but this
  /// long was too long.
  std::string explain_no_answer(const char* operation, int64_t asked, const std::string& cause,
                                std::optional<std::chrono::milliseconds> waited) const;

 private:
  std::string look_around(const char* operation, const std::vector<int64_t>& ranks, const std::string& group,
                          const std::string& cause) const;
};

}  // namespace sherd::detail
