#pragma once
// The place in shared memory where the processes of one group meet: the counterpart of ThreadHub. One per rank; used by
// one thread at a time, but the signals of mail may be waited for by another.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/shm_segment.h"
#include "comm/shm_wait.h"

namespace sherd::detail {

/// Who meets.
struct ShmMembers {
  int rank = 0;                // this one, among `ranks`
  std::vector<int64_t> ranks;  // the world's numbers of all, for messages
  std::chrono::milliseconds timeout{0};
  /// Errors say everything themselves. Otherwise a Link adds what the other ranks left in the store.
  bool whole_errors = false;
};

/// One rank's messages to another: how many records were written, and how many taken. shm_mail.cpp says what a record
/// is.
struct ShmMailSlot {
  ShmSignal posted;
  std::atomic<int32_t> first;  // the sender's descriptor of the first segment
  ShmSignal taken;             // raised by the receiver
};

class ShmHub {
 public:
  /// The bytes that each rank of such a group stages, where `area` are asked for: whole pages, and enough that a rank
  /// can give some to every other in one round, however many there are.
  static size_t area_of(int ranks, size_t area);
  /// The bytes of a segment for a group whose ranks stage `area` bytes each, as area_of() says.
  static size_t bytes_of(int ranks, size_t area);
  /// The part of it that rank `rank` allocates.
  static std::pair<size_t, size_t> part_of(int rank, int ranks, size_t area);

  ShmHub(ShmSegment segment, ShmMembers members, size_t area);
  ~ShmHub();
  ShmHub(const ShmHub&) = delete;
  ShmHub& operator=(const ShmHub&) = delete;

  /// No other process can join any more.
  void close_descriptor() { segment_.close_descriptor(); }

  int rank() const { return members_.rank; }
  int size() const { return static_cast<int>(members_.ranks.size()); }
  const ShmMembers& members() const { return members_; }

  /// The bytes that a rank can stage in a round.
  size_t room() const { return room_; }
  /// The same for each of `slots`, which are one for each rank at most. Never none.
  size_t room(int slots) const;
  /// Where this rank stages what it gives in the coming round.
  std::byte* stage() const { return area(rank(), round_); }
  /// What a rank staged for the last round. It stays until this rank comes to the next one.
  const std::byte* staged(int rank) const { return area(rank, round_ - 1); }

  /// The first round of a call: returns when every rank has come with a call that fits. Throws on every rank where they
  /// do not fit.
  void meet(const Call& call);
  /// A further round of the same call.
  void meet_again(const char* operation);
  /// Elements that a rank gives to another in the call at hand, -1: not said.
  int64_t gives(int from, int to) const { return numbers_of(from)[1 + to]; }

  ShmMailSlot& mail(int from, int to) const;
  const ProcessId& process(int rank) const;
  /// Waits for a signal of a rank; throws what became of it where it has gone or takes longer than it may.
  void wait(const char* operation, int peer, ShmSignal& signal, uint32_t least);

  /// This rank makes no more calls: the others' waiting for it ends. `reason` is what they are told, "" where it ends
  /// in good order.
  void leave(const std::string& reason) noexcept;
  /// True after an error in the middle of a call: the ranks are out of step.
  bool broken() const { return broken_; }
  bool has_left(int rank) const;
  [[noreturn]] void refuse_closed(const char* operation) const;
  /// A rank has gone: throws what it left to say, and this one leaves, too.
  [[noreturn]] void say_lost(const char* operation, int peer);

 private:
  struct Control;
  using Clock = std::chrono::steady_clock;

  std::byte* area(int rank, uint32_t round) const;
  Control& control(int rank) const;
  int64_t* numbers_of(int rank) const;
  void arrive_and_wait(const char* operation);
  void wait_until(Clock::time_point& end, const char* operation, int peer, ShmSignal& signal, uint32_t least);
  [[noreturn]] void tell_apart(const Call& call);
  [[noreturn]] void say_late(const char* operation, const std::vector<int64_t>& missing);

  ShmSegment segment_;
  ShmMembers members_;
  size_t area_;
  size_t room_;
  Patience patience_;
  uint32_t round_ = 0;        // rounds met so far
  uint32_t first_round_ = 0;  // of the call at hand
  std::atomic<bool> broken_ = false;
};

}  // namespace sherd::detail
