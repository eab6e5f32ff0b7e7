#include "comm/thread_hub.h"

#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "comm/call_shape.h"
#include "comm/copy.h"
#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

// The tensor of a call that says which device it works on; undefined for a barrier.
const at::Tensor& representative(const Call& call) {
  static const at::Tensor none;
  if (!call.inputs.empty()) return call.inputs.front();
  return call.outputs.empty() ? none : call.outputs.front();
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Up to this many bytes of a rank are copied: cheaper than a second meeting, after which the tensors may change. Of
// what every rank reduces as a whole, fewer.
constexpr size_t kStaged = size_t{128} * 1024;
constexpr size_t kStagedToReduce = size_t{32} * 1024;

bool can_be_staged(const Call& call) {
  size_t bytes = 0;
  const auto plain = [&](const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); };
  for (const at::Tensor& tensor : call.inputs) {
    if (!plain(tensor)) return false;
    bytes += tensor.nbytes();
  }
  const bool whole = call.kind == Collective::all_reduce || call.kind == Collective::reduce;
  return bytes <= (whole ? kStagedToReduce : kStaged) && std::all_of(call.outputs.begin(), call.outputs.end(), plain);
}

bool gives_blocks(Collective kind) {
  return kind == Collective::all_to_all || kind == Collective::scatter || kind == Collective::reduce_scatter;
}

}  // namespace

ThreadHub::ThreadHub(std::vector<int64_t> ranks, std::chrono::milliseconds timeout)
    : ranks_(std::move(ranks)),
      timeout_(timeout),
      patience_(Patience::of(static_cast<int>(ranks_.size()))),
      slots_(ranks_.size()) {
  for (Slot& slot : slots_) {
    for (Record& record : slot.records) {
      record.told.resize((sizeof(Told) + numbers_of_call(size()) * sizeof(int64_t) + sizeof(Line) - 1) / sizeof(Line));
    }
  }
}

// The one for this rank's coming meeting, which then is the first of a call.
ThreadHub::Record& ThreadHub::new_record(int rank) {
  Slot& slot = slots_[static_cast<size_t>(rank)];
  slot.first = slot.arrived.load(std::memory_order_relaxed) + 1;
  return slot.records[slot.first % 2];
}

bool ThreadHub::meet(int rank, const Call& call, const std::vector<ByteRuns>& runs,
                     const std::vector<ByteRuns>& places) {
  check_blocks_per_rank(call, ranks_);
  check_open(call.kind);
  Record& mine = new_record(rank);
  write_numbers(call, size(), mine.numbers());
  mine.head().staged = runs.empty() && can_be_staged(call) ? 1 : 0;
  if (mine.head().staged == 0) {
    show(mine, call, runs, places);
  } else if (call.kind != Collective::broadcast || call.root == rank) {
    stage(rank, call, mine);
  }
  arrive(rank, call);
  constexpr size_t kFew = 64;  // without a place on the heap
  c10::SmallVector<const int64_t*, kFew> numbers;
  size_t staged = 0;
  for (int i = 0; i < size(); ++i) {
    numbers.push_back(record(rank, i).numbers());
    staged += static_cast<size_t>(record(rank, i).head().staged);
  }
  if (!fit_together(numbers.data(), size())) tell_apart(rank, call);
  if (staged == slots_.size()) return true;
  if (staged > 0) publish(rank, call, runs, places);  // some gave copies, others their tensors
  return false;
}

void ThreadHub::stage(int rank, const Call& call, Record& record) const {
  size_t bytes = 0;
  for (const at::Tensor& tensor : call.inputs) bytes += tensor.nbytes();
  if (record.bytes.size() * sizeof(Line) < bytes) record.bytes.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
  auto* to = reinterpret_cast<std::byte*>(record.bytes.data());
  const CopyTo where = best_for_others(size(), bytes);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const at::Tensor& tensor = call.inputs[i];
    const bool own = gives_blocks(call.kind) && i == static_cast<size_t>(rank);
    if (!own) copy_bytes(to, tensor.const_data_ptr(), tensor.nbytes(), where);
    to += tensor.nbytes();
  }
}

const std::byte* ThreadHub::staged(int reader, int from, const Call& mine) const {
  const Record& given = record(reader, from);
  int64_t before = 0;
  if (gives_blocks(mine.kind)) before = std::accumulate(given.numbers() + 1, given.numbers() + 1 + reader, int64_t{0});
  const auto* bytes = reinterpret_cast<const std::byte*>(given.bytes.data());
  return bytes + static_cast<size_t>(before) * representative(mine).element_size();
}

std::byte* ThreadHub::plain(int reader, int rank) const { return record(reader, rank).head().plain; }

void ThreadHub::show(Record& record, const Call& call, const std::vector<ByteRuns>& runs,
                     const std::vector<ByteRuns>& places) {
  const bool plain = call.kind == Collective::all_reduce && is_plain(call.outputs.front());
  record.head().plain = plain ? static_cast<std::byte*>(call.outputs.front().mutable_data_ptr()) : nullptr;
  record.call = call;
  record.runs = runs;
  record.places = places;
}

// A meeting in which every rank shows its call itself.
void ThreadHub::publish(int rank, const Call& call, const std::vector<ByteRuns>& runs,
                        const std::vector<ByteRuns>& places) {
  show(new_record(rank), call, runs, places);
  arrive(rank, call);
}

void ThreadHub::meet_again(int rank) {
  const Call& mine = call(rank, rank);
  check_open(mine.kind);
  arrive(rank, mine);
}

void ThreadHub::part(int rank) {
  const Call& mine = call(rank, rank);
  check_open(mine.kind);
  arrive(rank, mine);
  for (Record& record : slots_[static_cast<size_t>(rank)].records) {
    record.call = Call();
    record.runs.clear();
    record.places.clear();
  }
}

void ThreadHub::check_open(Collective kind) const {
  if (broken_.load(std::memory_order_acquire)) throw_failure(name_of(kind));
}

bool ThreadHub::all_came(uint64_t meeting) const {
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.arrived.load(std::memory_order_seq_cst) >= meeting; });
}

void ThreadHub::arrive(int rank, const Call& call) {
  Slot& slot = slots_[static_cast<size_t>(rank)];
  const uint64_t meeting = slot.arrived.load(std::memory_order_relaxed) + 1;
  const at::Tensor& tensor = representative(call);
  const bool on_device = tensor.defined() && !tensor.device().is_cpu();
  if (on_device) slot.records[meeting % 2].mark = DeviceMark(tensor);
  slot.arrived.store(meeting, std::memory_order_seq_cst);
  // The last to come wakes those who sleep; woken by every other they would only find that they have to wait on.
  if (sleepers_.load(std::memory_order_seq_cst) > 0 && all_came(meeting)) {
    { const std::lock_guard lock(mutex_); }  // who is about to sleep does so first
    changed_.notify_all();
  }
  // A meeting that took place is good even if a rank failed right after it.
  if (!poll(patience_, [&] { return all_came(meeting) || broken_.load(std::memory_order_relaxed); }) ||
      !all_came(meeting)) {
    sleep_until_all_came(meeting, name_of(call.kind));
  }
  if (!on_device) return;
  for (const Slot& other : slots_) other.records[meeting % 2].mark.wait();
}

void ThreadHub::sleep_until_all_came(uint64_t meeting, const char* operation) {
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const bool over =
      changed_.wait_for(lock, timeout_, [&] { return all_came(meeting) || failure_ || gone(meeting).has_value(); });
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  if (all_came(meeting)) return;
  if (over && !failure_) break_up(*gone(meeting));
  if (!over) {
    std::vector<int64_t> missing;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].arrived.load(std::memory_order_seq_cst) < meeting) missing.push_back(ranks_[i]);
    }
    break_up(late(missing));
  }
  throw_failure(operation);
}

// Every rank has found that the calls differ.
void ThreadHub::tell_apart(int rank, const Call& call) {
  publish(rank, call);
  std::vector<CallShape> shapes;
  for (int i = 0; i < size(); ++i) shapes.push_back(shape_of(this->call(rank, i), size()));
  {
    const std::lock_guard lock(mutex_);
    break_up({kDifferentCalls, calls_by_rank(ranks_, shapes), kDifferentCallsHelp});
  }
  throw_failure(name_of(call.kind));
}

ThreadHub::Failure ThreadHub::late(const std::vector<int64_t>& missing) const {
  return Failure{missing_problem(missing),
                 {{"waited", seconds_text(timeout_)}, {"group", "ranks " + rank_list(ranks_)}},
                 kMissingHelp};
}

// What is wrong where a rank has left that has not come to the meeting.
std::optional<ThreadHub::Failure> ThreadHub::gone(uint64_t meeting) const {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].gone && slots_[i].arrived < meeting) ranks.push_back(ranks_[i]);
  }
  if (ranks.empty()) return std::nullopt;
  return gone_by(ranks);
}

ThreadHub::Failure ThreadHub::gone_by(const std::vector<int64_t>& ranks) const {
  return {gone_problem(ranks), {{"group", "ranks " + rank_list(ranks_)}}, kDifferentCallsHelp};
}

void ThreadHub::leave(int64_t world_rank) {
  const std::lock_guard lock(mutex_);
  const auto place = std::find(ranks_.begin(), ranks_.end(), world_rank);
  if (place == ranks_.end()) return;
  slots_[static_cast<size_t>(place - ranks_.begin())].gone = true;
  changed_.notify_all();  // those who wait for it
}

void ThreadHub::break_up(Failure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  broken_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void ThreadHub::throw_failure(const char* operation) const {
  ErrorText text(operation, failure_->problem);
  for (const auto& [name, value] : failure_->facts) text.fact(name, value);
  throw_comm_error(text.help(failure_->help));
}

void ThreadHub::post(int from, int to, int tag, const at::Tensor& tensor) {
  const at::Tensor copy = tensor.clone();
  DeviceMark mark(copy);
  const std::lock_guard lock(mutex_);
  if (failure_) throw_failure("send");
  Mailbox& box = mail_[{from, to, tag}];
  box.waiting.emplace(box.sent++, std::pair(copy, std::move(mark)));
  changed_.notify_all();
}

uint64_t ThreadHub::take_turn(int from, int to, int tag) {
  const std::lock_guard lock(mutex_);
  return mail_[{from, to, tag}].turns++;
}

at::Tensor ThreadHub::take(int from, int to, int tag, uint64_t turn) {
  std::unique_lock lock(mutex_);
  Mailbox& box = mail_[{from, to, tag}];
  const Slot& sender = slots_[static_cast<size_t>(from)];
  const bool over =
      changed_.wait_for(lock, timeout_, [&] { return box.waiting.count(turn) > 0 || failure_ || sender.gone; });
  const auto message = box.waiting.find(turn);
  if (message == box.waiting.end()) {
    if (sender.gone) break_up(gone_by({ranks_[static_cast<size_t>(from)]}));
    if (!over) break_up(late({ranks_[static_cast<size_t>(from)]}));
    throw_failure("receive");
  }
  auto [tensor, mark] = std::move(message->second);
  box.waiting.erase(message);
  lock.unlock();
  mark.wait();
  return tensor;
}

void ThreadHub::fail(int64_t world_rank, const std::string& message) {
  const std::lock_guard lock(mutex_);
  break_up(
      Failure{failed_problem(world_rank), {{fmt::format("rank {}", world_rank), message}}, failed_help(world_rank)});
}

std::shared_ptr<ThreadHub> ThreadHubs::hub(const std::string& name, const std::vector<int64_t>& ranks) {
  const std::lock_guard lock(mutex_);
  auto& hub = hubs_[name];
  if (!hub) {
    hub = std::make_shared<ThreadHub>(ranks, timeout_);
    if (failure_) hub->fail(failure_->first, failure_->second);
    for (const int64_t rank : gone_) hub->leave(rank);
  }
  return hub;
}

void ThreadHubs::fail(int64_t world_rank, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_.emplace(world_rank, message);
  for (auto& [name, hub] : hubs_) hub->fail(world_rank, message);
}

void ThreadHubs::leave(int64_t world_rank) {
  const std::lock_guard lock(mutex_);
  gone_.push_back(world_rank);
  for (auto& [name, hub] : hubs_) hub->leave(world_rank);
}

}  // namespace sherd::detail
