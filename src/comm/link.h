#pragma once
// What joins a rank to the others of its world: the store they share, and how a failure reaches them.

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "comm/thread_hub.h"

namespace sherd::detail {

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
  std::shared_ptr<std::atomic<bool>> broken = std::make_shared<std::atomic<bool>>(false);  // a call has failed

  /// Leaves the message where the other ranks look when something goes wrong. The first one counts.
  void post_failure(const std::string& message) const;
  /// The rank that failed and its message, if any.
  std::optional<std::pair<int64_t, std::string>> find_failure() const;
  /// Tells the others that this rank makes no more calls.
  void post_end() const;
  /// Called where the store is about to die with this process: waits until the other ranks have ended or have learnt
  /// what went wrong. A moment at most where something did, else the timeout.
  void wait_for_the_others() const;

  /// Called by a rank whose transport broke, `cause` being what it said: waits a moment for what the others say and
  /// returns the whole error text for `operation` on the group of `ranks`.
  std::string explain_broken_call(const char* operation, const std::vector<int64_t>& ranks, const std::string& group,
                                  const std::string& cause) const;

 private:
  std::string look_around(const char* operation, const std::vector<int64_t>& ranks, const std::string& group,
                          const std::string& cause) const;
};

}  // namespace sherd::detail
