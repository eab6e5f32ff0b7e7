#include "comm/thread_hub.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/call_shape.h"
#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

// The tensor of a call that says which device it works on; undefined for a barrier.
at::Tensor representative(const Call& call) {
  if (!call.inputs.empty()) return call.inputs.front();
  return call.outputs.empty() ? at::Tensor() : call.outputs.front();
}

}  // namespace

ThreadHub::ThreadHub(std::vector<int64_t> ranks, std::chrono::milliseconds timeout)
    : ranks_(std::move(ranks)),
      timeout_(timeout),
      patience_(Patience::of(static_cast<int>(ranks_.size()))),
      slots_(ranks_.size()) {}

void ThreadHub::meet(int rank, const Call& call) {
  check_blocks_per_rank(call, ranks_);
  std::unique_lock lock(mutex_);
  check_open(call.kind);
  slots_[static_cast<size_t>(rank)].call = call;
  arrive(lock, rank, true);
}

void ThreadHub::meet_again(int rank) {
  std::unique_lock lock(mutex_);
  check_open(call(rank).kind);
  arrive(lock, rank, false);
}

void ThreadHub::part(int rank) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(rank)];
  check_open(slot.call.kind);
  arrive(lock, rank, false);
  slot.call = Call();
}

void ThreadHub::check_open(Collective kind) const {
  if (failure_) throw_failure(name_of(kind));
}

void ThreadHub::arrive(std::unique_lock<std::mutex>& lock, int rank, bool new_calls) {
  Slot& slot = slots_[static_cast<size_t>(rank)];
  const at::Tensor tensor = representative(slot.call);
  if (tensor.defined()) slot.mark = DeviceMark(tensor);
  slot.here = true;
  if (++arrived_ == slots_.size()) {
    arrived_ = 0;
    ++meeting_;
    ++news_;
    for (Slot& other : slots_) other.here = false;
    if (new_calls) {
      if (auto failure = disagreement()) break_up(std::move(*failure));
    }
    changed_.notify_all();
  } else {
    if (auto failure = gone()) break_up(std::move(*failure));
    const uint64_t mine = meeting_;
    const uint64_t old_news = news_;
    if (!failure_) {
      lock.unlock();
      poll(patience_, [&] { return news_ != old_news; });
      lock.lock();
    }
    const bool over = changed_.wait_for(lock, timeout_, [&] { return meeting_ != mine || failure_; });
    if (!over) {
      std::vector<int64_t> missing;
      for (size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i].here) missing.push_back(ranks_[i]);
      }
      break_up(late(missing));
    }
    // A meeting that took place is good even if a rank failed right after it.
    if (failure_ && meeting_ == mine) throw_failure(name_of(slot.call.kind));
  }
  if (failure_ && failure_->spoils_last_meeting) throw_failure(name_of(slot.call.kind));
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  for (const Slot& other : slots_) other.mark.wait();
}

std::optional<ThreadHub::Failure> ThreadHub::disagreement() const {
  std::vector<const Call*> calls;
  calls.reserve(slots_.size());
  for (const Slot& slot : slots_) calls.push_back(&slot.call);
  if (fit_together(calls)) return std::nullopt;
  std::vector<CallShape> shapes;
  for (const Call* call : calls) shapes.push_back(shape_of(*call, size()));
  return Failure{kDifferentCalls, calls_by_rank(ranks_, shapes), kDifferentCallsHelp, true};
}

ThreadHub::Failure ThreadHub::late(const std::vector<int64_t>& missing) const {
  return Failure{missing_problem(missing),
                 {{"waited", seconds_text(timeout_)}, {"group", "ranks " + rank_list(ranks_)}},
                 kMissingHelp};
}

std::optional<ThreadHub::Failure> ThreadHub::gone() const {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].gone) ranks.push_back(ranks_[i]);
  }
  if (ranks.empty()) return std::nullopt;
  return Failure{gone_problem(ranks), {{"group", "ranks " + rank_list(ranks_)}}, kDifferentCallsHelp};
}

void ThreadHub::leave(int64_t world_rank) {
  const std::lock_guard lock(mutex_);
  const auto place = std::find(ranks_.begin(), ranks_.end(), world_rank);
  if (place == ranks_.end()) return;
  slots_[static_cast<size_t>(place - ranks_.begin())].gone = true;
  if (arrived_ > 0) break_up(*gone());
  changed_.notify_all();
}

void ThreadHub::break_up(Failure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  ++news_;
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
    if (sender.gone) break_up(*gone());
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
