#pragma once
// The place where the rank threads of one group meet. Shared by the ranks' ThreadsBackends; all methods may be called
// from any thread.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/byte_runs.h"
#include "comm/call.h"
#include "comm/device_mark.h"
#include "comm/shm_wait.h"

namespace sherd::detail {

class ThreadHub {
 public:
  /// `ranks`: the world's ranks of the members, for messages.
  ThreadHub(std::vector<int64_t> ranks, std::chrono::milliseconds timeout);

  /// Publishes this rank's call and returns when every rank has published its own. They are checked against each
  /// other: on a difference every rank throws. True where what every rank gives is small and on the CPU: then copies of
  /// it are in staged(), and the call needs no other meeting. Otherwise the tensors themselves are in call(), and the
  /// ranks meet again in part(). With `runs`, the elements that this rank gives lie in these, one for each of the
  /// call's inputs, which only say how many there are; with `places`, others may write what this rank takes, one for
  /// each of the call's outputs.
  bool meet(int rank, const Call& call, const std::vector<ByteRuns>& runs = {},
            const std::vector<ByteRuns>& places = {});
  /// A further meeting within the same call.
  void meet_again(int rank);
  /// The last meeting of a call; what this rank published is let go.
  void part(int rank);
  /// What `rank` published, for `reader`. Until the reader's next meeting.
  const Call& call(int reader, int rank) const { return record(reader, rank).call; }
  /// Where the elements of that lie; nothing where they are its tensors.
  const std::vector<ByteRuns>& runs(int reader, int rank) const { return record(reader, rank).runs; }
  const std::vector<ByteRuns>& places(int reader, int rank) const { return record(reader, rank).places; }
  /// What `from`, another rank, gives to `reader`, whose call is `mine`: the same to all, or one block to each.
  const std::byte* staged(int reader, int from, const Call& mine) const;
  /// Where the bytes of a rank's all_reduce lie; null where they do not lie in order in memory of the host.
  std::byte* plain(int reader, int rank) const;

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
  // What two ranks write never lies in one of these: it would go back and forth between their caches.
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  struct Told {
    std::byte* plain = nullptr;  // see plain()
    int64_t staged = 0;          // 1: `bytes` holds what it gives
  };
  // What a rank tells the others in one meeting.
  // Others read of a small call what the first two point to, and nothing else of it changes: each line that a rank
  // writes and others read costs them about as much as the meeting.
  struct Record {
    std::vector<Line> told;      // Told, and numbers behind it: see write_numbers
    std::vector<Line> bytes;     // what it gives to others, block after block, with room for its own
    Call call;                   // a copy, so that the tensors outlive a rank that fails in the middle
    std::vector<ByteRuns> runs;  // likewise, as are
    std::vector<ByteRuns> places;
    DeviceMark mark;  // the work on a GPU that must be over before others read

    Told& head() { return *reinterpret_cast<Told*>(told.data()); }
    const Told& head() const { return *reinterpret_cast<const Told*>(told.data()); }
    int64_t* numbers() { return reinterpret_cast<int64_t*>(&head() + 1); }
    const int64_t* numbers() const { return reinterpret_cast<const int64_t*>(&head() + 1); }
  };
  // Two records and one number are enough: who comes to meeting k has read what was told in meeting k - 1, so when all
  // have come to k, the records of k - 1 are free for k + 1.
  struct alignas(64) Slot {
    std::atomic<uint64_t> arrived = 0;  // meetings that this rank has come to
    std::atomic<bool> gone = false;
    // The rank's own business, like the records until it arrives; others poll the line above.
    alignas(64) uint64_t first = 0;  // meeting of the call at hand
    std::array<Record, 2> records;
  };
  struct Failure {
    std::string problem;  // "rank 2 failed"
    std::vector<std::pair<std::string, std::string>> facts;
    std::string help;
  };
  struct Mailbox {
    uint64_t sent = 0;
    uint64_t turns = 0;
    std::map<uint64_t, std::pair<at::Tensor, DeviceMark>> waiting;  // by number, from 0 on
  };

  void check_open(Collective kind) const;
  const Record& record(int reader, int rank) const {
    return slots_[static_cast<size_t>(rank)].records[slots_[static_cast<size_t>(reader)].first % 2];
  }
  Record& new_record(int rank);
  bool all_came(uint64_t meeting) const;
  void arrive(int rank, const Call& call);
  void sleep_until_all_came(uint64_t meeting, const char* operation);
  static void show(Record& record, const Call& call, const std::vector<ByteRuns>& runs,
                   const std::vector<ByteRuns>& places);
  void publish(int rank, const Call& call, const std::vector<ByteRuns>& runs = {},
               const std::vector<ByteRuns>& places = {});
  void stage(int rank, const Call& call, Record& record) const;
  [[noreturn]] void tell_apart(int rank, const Call& call);
  void break_up(Failure failure);
  [[noreturn]] void throw_failure(const char* operation) const;
  Failure late(const std::vector<int64_t>& missing) const;
  std::optional<Failure> gone(uint64_t meeting) const;
  Failure gone_by(const std::vector<int64_t>& ranks) const;

  const std::vector<int64_t> ranks_;
  const std::chrono::milliseconds timeout_;

  const Patience patience_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_ = 0;  // who wait for changed_, and not only poll
  std::vector<Slot> slots_;
  std::optional<Failure> failure_;                     // set once
  std::atomic<bool> broken_ = false;                   // it is set
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
