#pragma once
// The place where the rank threads of one group meet. Shared by the ranks' ThreadsBackends; all methods may be called
// from any thread.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/call.h"
#include "comm/device_mark.h"
#include "comm/shm_wait.h"

namespace sherd::detail {

class ThreadHub {
 public:
  /// `ranks`: the world's ranks of the members, for messages.
  ThreadHub(std::vector<int64_t> ranks, std::chrono::milliseconds timeout);

  /// Publishes this rank's call and returns when every rank has published its own. They are checked against each
  /// other: on a difference every rank throws. Calls stay readable until the next meeting.
  void meet(int rank, const Call& call);
  /// A further meeting within the same call.
  void meet_again(int rank);
  /// The last meeting of a call; what this rank published is let go.
  void part(int rank);
  /// What a rank published. Only between meetings.
  const Call& call(int rank) const { return slots_[static_cast<size_t>(rank)].call; }

  /// A copy of `tensor` waits in a mailbox until the other side takes it.
  void post(int from, int to, int tag, const at::Tensor& tensor);
  /// The k-th turn gets the k-th message. take() waits for it.
  uint64_t take_turn(int from, int to, int tag);
  at::Tensor take(int from, int to, int tag, uint64_t turn);

  /// Ends every waiting and every later call with the message of a rank that cannot go on.
  void fail(int64_t world_rank, const std::string& message);
  /// A rank's function has returned: a call that needs it can never complete.
  void leave(int64_t world_rank);
  int64_t world_rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  struct Slot {
    Call call;        // a copy, so that the tensors outlive a rank that fails in the middle; empty between calls
    DeviceMark mark;  // the work on a GPU that must be over before others read
    bool here = false;
    bool gone = false;
  };
  struct Failure {
    std::string problem;  // "rank 2 failed"
    std::vector<std::pair<std::string, std::string>> facts;
    std::string help;
    bool spoils_last_meeting = false;  // the ranks met, but their calls do not fit
  };
  struct Mailbox {
    uint64_t sent = 0;
    uint64_t turns = 0;
    std::map<uint64_t, std::pair<at::Tensor, DeviceMark>> waiting;  // by number, from 0 on
  };

  void check_open(Collective kind) const;
  void arrive(std::unique_lock<std::mutex>& lock, int rank, bool new_calls);
  void break_up(Failure failure);
  [[noreturn]] void throw_failure(const char* operation) const;
  std::optional<Failure> disagreement() const;
  Failure late(const std::vector<int64_t>& missing) const;
  std::optional<Failure> gone() const;

  const std::vector<int64_t> ranks_;
  const std::chrono::milliseconds timeout_;

  const Patience patience_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> news_ = 0;  // changes with meeting_ and failure_, for those who poll without the mutex
  std::vector<Slot> slots_;
  size_t arrived_ = 0;
  uint64_t meeting_ = 0;
  std::optional<Failure> failure_;
  std::map<std::tuple<int, int, int>, Mailbox> mail_;  // by sender, receiver and tag
};

/// The hubs of the groups of one spawned world, found by name.
class ThreadHubs {
 public:
  explicit ThreadHubs(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  /// The hub called `name`; the first member to ask makes it.
  std::shared_ptr<ThreadHub> hub(const std::string& name, const std::vector<int64_t>& ranks);
  /// Ends every call on every hub, those still to be made included.
  void fail(int64_t world_rank, const std::string& message);
  void leave(int64_t world_rank);

 private:
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ThreadHub>> hubs_;
  std::optional<std::pair<int64_t, std::string>> failure_;
  std::vector<int64_t> gone_;
};

}  // namespace sherd::detail
