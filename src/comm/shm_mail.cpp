#include "comm/shm_mail.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include "comm/sync_backend.h"

namespace sherd::detail {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kSegment = size_t{256} * 1024;  // a message that is larger gets a segment of its own size
constexpr size_t kDims = 8;                      // of the shape that an error shows; beyond, the number of elements

enum class RecordKind : uint32_t {
  message,
  rewind,  // what follows stands at the beginning of this segment
  next,    // what follows stands in another segment
};

size_t rounded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

struct alignas(kLine) ShmMail::Record {
  RecordKind kind = RecordKind::message;
  int32_t next = -1;  // the sender's descriptor
  int32_t tag = 0;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  size_t bytes = 0;
  size_t ndim = 0;
  std::array<int64_t, kDims> sizes = {};

  size_t length() const { return sizeof(Record) + rounded(bytes); }
};

ShmMail::ShmMail(std::shared_ptr<ShmHub> hub)
    : hub_(std::move(hub)), outboxes_(static_cast<size_t>(hub_->size())), inboxes_(static_cast<size_t>(hub_->size())) {}

void ShmMail::append(int to, Outbox& outbox, const Record& record, const void* data) {
  std::byte* at = outbox.segment.data() + outbox.offset;
  std::memcpy(at, &record, sizeof record);
  if (data != nullptr) std::memcpy(at + sizeof record, data, record.bytes);
  outbox.offset += record.length();
  hub_->mail(hub_->rank(), to).posted.raise(++outbox.posted);
}

// Afterwards a record of `bytes` fits, and one that leads elsewhere behind it.
void ShmMail::make_room(int to, Outbox& outbox, size_t bytes) {
  ShmMailSlot& slot = hub_->mail(hub_->rank(), to);
  const size_t needed = bytes + sizeof(Record);
  while (!outbox.full.empty() && slot.taken.reached(outbox.full.front().first)) outbox.full.pop_front();
  if (!outbox.segment.empty()) {
    const size_t end = slot.taken.reached(outbox.rewound) ? outbox.segment.size() : outbox.rewound_at;
    if (outbox.offset + needed <= end) return;
    // The receiver may come to the record that leads back after what is written next.
    if (needed <= outbox.offset && slot.taken.reached(outbox.posted)) {
      outbox.rewound_at = outbox.offset;
      append(to, outbox, {.kind = RecordKind::rewind}, nullptr);
      outbox.rewound = outbox.posted;
      outbox.offset = 0;
      return;
    }
  }
  // Twice what is needed: a second message of this size fits behind the first, and then there is room to begin again.
  ShmSegment next = ShmSegment::create_private(std::max(kSegment, 2 * needed));
  if (outbox.segment.empty()) {
    slot.first.store(next.descriptor(), std::memory_order_release);
  } else {
    append(to, outbox, {.kind = RecordKind::next, .next = next.descriptor()}, nullptr);
    outbox.full.emplace_back(outbox.posted, std::move(outbox.segment));
  }
  outbox.segment = std::move(next);
  outbox.offset = 0;
  outbox.rewound = outbox.posted;
  outbox.rewound_at = outbox.segment.size();
}

void ShmMail::post(int to, int tag, const at::Tensor& tensor) {
  if (hub_->broken()) hub_->refuse_closed("send");
  const at::Tensor data = tensor.contiguous();
  Record record{.tag = tag, .dtype = data.scalar_type(), .bytes = data.nbytes()};
  if (static_cast<size_t>(data.dim()) <= kDims) {
    record.ndim = static_cast<size_t>(data.dim());
    std::copy(data.sizes().begin(), data.sizes().end(), record.sizes.begin());
  } else {
    record.ndim = 1;
    record.sizes[0] = data.numel();
  }
  Outbox& outbox = outboxes_[static_cast<size_t>(to)];
  const std::lock_guard lock(outbox.mutex);
  make_room(to, outbox, record.length());
  append(to, outbox, record, data.const_data_ptr());
}

// A segment of another rank, which may have gone with what it had posted.
ShmSegment ShmMail::open_segment(int from, int descriptor) const {
  try {
    return ShmSegment::open(hub_->process(from).pid, descriptor);
  } catch (const std::system_error&) {
    if (hub_->has_left(from) || !hub_->process(from).alive()) hub_->say_lost("receive", from);
    throw;
  }
}

// The next message of a rank; waits for it.
ShmMail::Record& ShmMail::next_record(int from, Inbox& inbox) {
  ShmMailSlot& slot = hub_->mail(from, hub_->rank());
  for (;;) {
    hub_->wait("receive", from, slot.posted, inbox.taken + 1);
    if (inbox.segment.empty()) inbox.segment = open_segment(from, slot.first.load(std::memory_order_acquire));
    auto& record = *reinterpret_cast<Record*>(inbox.segment.data() + inbox.offset);
    if (record.kind == RecordKind::message) return record;
    if (record.kind == RecordKind::next) inbox.segment = open_segment(from, record.next);
    inbox.offset = 0;
    slot.taken.raise(++inbox.taken);
  }
}

uint64_t ShmMail::take_turn(int from, int tag) {
  Inbox& inbox = inboxes_[static_cast<size_t>(from)];
  const std::lock_guard lock(inbox.tags_mutex);
  return inbox.tags[tag].turns++;
}

void ShmMail::take(int from, int tag, uint64_t turn, const at::Tensor& tensor) {
  Inbox& inbox = inboxes_[static_cast<size_t>(from)];
  const std::lock_guard lock(inbox.mutex);
  const auto find_tag = [&](int wanted) -> Tag& {
    const std::lock_guard tags_lock(inbox.tags_mutex);
    return inbox.tags[wanted];
  };
  Tag& box = find_tag(tag);
  if (auto early = box.waiting.extract(turn); !early.empty()) {
    check_fits(early.mapped(), tensor);
    copy_elements(tensor, early.mapped());
    return;
  }
  for (bool found = false; !found;) {
    Record& record = next_record(from, inbox);
    const at::Tensor message =
        at::from_blob(&record + 1, at::IntArrayRef(record.sizes.data(), record.ndim), at::TensorOptions(record.dtype));
    Tag& other = find_tag(record.tag);
    const uint64_t number = other.came++;
    found = record.tag == tag && number == turn;
    const auto done = [&] {
      inbox.offset += record.length();
      hub_->mail(from, hub_->rank()).taken.raise(++inbox.taken);
    };
    if (!found) {
      other.waiting.emplace(number, message.clone());
      done();
      continue;
    }
    try {
      check_fits(message, tensor);
      copy_elements(tensor, message);
    } catch (...) {  // it was this one's turn all the same
      done();
      throw;
    }
    done();
  }
}

void ShmMail::linger(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (int to = 0; to < hub_->size(); ++to) {
    const Outbox& outbox = outboxes_[static_cast<size_t>(to)];
    ShmSignal& taken = hub_->mail(hub_->rank(), to).taken;
    struct Over {};
    try {
      wait_for(taken, outbox.posted, {}, [&] {
        const bool gone = hub_->has_left(to) || !hub_->process(to).alive();
        if (gone || std::chrono::steady_clock::now() >= end) throw Over();
      });
    } catch (const Over&) {  // nobody will take them
    }
  }
}

}  // namespace sherd::detail
