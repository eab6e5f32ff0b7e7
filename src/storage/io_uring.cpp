// Reads by io_uring: a disk is asked for hundreds of ranges before the first has come.

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "storage/read_pieces.h"

namespace sherd {
namespace {

class Ring {
 public:
  explicit Ring(unsigned entries) : error_(io_uring_queue_init(entries, &ring_, 0)) {}
  ~Ring() {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  bool is_open() const { return error_ == 0; }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_ = {};
  int error_;
};

// Marks what completed in full, and returns how many completed at all.
unsigned collect(Ring& ring, std::span<const ReadRequest> pieces, std::vector<bool>& complete) {
  unsigned count = 0;
  unsigned head = 0;
  io_uring_cqe* entry = nullptr;
  io_uring_for_each_cqe(ring.get(), head, entry) {
    const auto piece = static_cast<size_t>(entry->user_data);
    complete[piece] = entry->res >= 0 && static_cast<size_t>(entry->res) == pieces[piece].into.size();
    ++count;
  }
  io_uring_cq_advance(ring.get(), count);
  return count;
}

}  // namespace

bool read_by_io_uring(const FileToRead& from, std::span<const ReadRequest> pieces) {
  constexpr unsigned kInFlight = 256;
  Ring ring(static_cast<unsigned>(std::min<size_t>(kInFlight, pieces.size())));
  if (!ring.is_open()) return false;  // no such call, not allowed (as in most containers), or no memory for it

  std::vector<bool> complete(pieces.size());
  size_t next = 0;       // the first piece that is not queued
  size_t submitted = 0;  // pieces that the kernel has, or had
  size_t answered = 0;
  bool refused = false;  // the kernel takes no more
  while (answered < submitted || (next < pieces.size() && !refused)) {
    while (next < pieces.size() && next - answered < kInFlight && !refused) {
      io_uring_sqe* entry = io_uring_get_sqe(ring.get());
      if (entry == nullptr) break;
      io_uring_prep_read(entry, from.file, pieces[next].into.data(), static_cast<unsigned>(pieces[next].into.size()),
                         static_cast<uint64_t>(pieces[next].offset));
      entry->user_data = next++;
    }
    if (refused) {
      io_uring_cqe* entry = nullptr;
      io_uring_wait_cqe(ring.get(), &entry);
    } else {
      const int result = io_uring_submit_and_wait(ring.get(), 1);
      if (result >= 0) submitted += static_cast<size_t>(result);
      refused = result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY;
    }
    answered += collect(ring, pieces, complete);
  }
  // What came short, or not at all, is read again for its error, or for its rest. Only now: nothing may write into the
  // caller's memory after an exception.
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!complete[i]) read_piece(from, pieces[i]);
  }
  return true;
}

}  // namespace sherd
