#pragma once
// Messages between two processes. A send never waits: a copy of the message lies in memory of the sender until the
// receiver takes it, whatever its size and however many there are.

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/shm_hub.h"

namespace sherd::detail {

class ShmMail {
 public:
  explicit ShmMail(std::shared_ptr<ShmHub> hub);

  /// Throws std::system_error where there is no memory.
  void post(int to, int tag, const at::Tensor& tensor);
  /// The k-th turn gets the k-th message of `tag`. take() waits for it and copies it into the tensor.
  uint64_t take_turn(int from, int tag);
  void take(int from, int tag, uint64_t turn, const at::Tensor& tensor);

  /// Returns when every message has been taken, or those who have not taken theirs are gone, or the time is over. The
  /// messages of a process end with it.
  void linger(std::chrono::milliseconds time);

 private:
  // A stream of records in a chain of segments: a full one ends with a record that names the next.
  struct Outbox {
    std::mutex mutex;
    ShmSegment segment;
    size_t offset = 0;
    uint32_t posted = 0;
    uint32_t rewound = 0;   // the number of the last record that led to the beginning of this segment,
    size_t rewound_at = 0;  // and where it stands: nothing may be written there until it is taken
    std::deque<std::pair<uint32_t, ShmSegment>> full;  // kept until this many records are taken
  };
  struct Tag {
    uint64_t turns = 0;
    uint64_t came = 0;
    std::map<uint64_t, at::Tensor> waiting;  // those that came before their turn was asked for
  };
  struct Inbox {
    std::mutex mutex;
    ShmSegment segment;
    size_t offset = 0;
    uint32_t taken = 0;
    std::mutex tags_mutex;
    std::map<int, Tag> tags;
  };
  struct Record;

  ShmSegment open_segment(int from, int descriptor) const;
  Record& next_record(int from, Inbox& inbox);
  void make_room(int to, Outbox& outbox, size_t bytes);
  void append(int to, Outbox& outbox, const Record& record, const void* data);

  std::shared_ptr<ShmHub> hub_;
  std::vector<Outbox> outboxes_;
  std::vector<Inbox> inboxes_;
};

}  // namespace sherd::detail
