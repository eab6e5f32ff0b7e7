#include "comm/shm_hub.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/call_shape.h"
#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;
constexpr size_t kReason = 1024;

constexpr size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// What a rank tells the others besides data. After it stand two lists of numbers (see write_numbers), one for even and
// one for odd rounds, and a mail slot for each rank.
struct ShmHub::Control {
  ShmSignal arrived;  // rounds that this rank has come to
  alignas(kLine) std::atomic<uint32_t> left;
  ProcessId process;
  std::array<char, kReason> reason;
};

namespace {

size_t numbers_bytes(int ranks) { return rounded(numbers_of_call(ranks) * sizeof(int64_t), kLine); }

size_t control_bytes(int ranks, size_t control) {
  return rounded(control + 2 * numbers_bytes(ranks) + static_cast<size_t>(ranks) * sizeof(ShmMailSlot), kPage);
}

}  // namespace

size_t ShmHub::area_of(int ranks, size_t area) {
  const size_t least = 2 * static_cast<size_t>(ranks) * kLine;  // half of it is for one round
  return rounded(std::max(area, least), kPage);
}

size_t ShmHub::bytes_of(int ranks, size_t area) { return part_of(ranks, ranks, area).first; }

std::pair<size_t, size_t> ShmHub::part_of(int rank, int ranks, size_t area) {
  const size_t each = control_bytes(ranks, sizeof(Control)) + area_of(ranks, area);
  return {kPage + static_cast<size_t>(rank) * each, each};
}

ShmHub::ShmHub(ShmSegment segment, ShmMembers members, size_t area)
    : segment_(std::move(segment)),
      members_(std::move(members)),
      area_(area_of(size(), area)),
      room_(area_ / 2 / kLine * kLine),
      patience_(Patience::of(size())) {
  control(rank()).process = ProcessId::of(::getpid());
}

ShmHub::~ShmHub() { leave(""); }

ShmHub::Control& ShmHub::control(int rank) const {
  return *reinterpret_cast<Control*>(segment_.data() + part_of(rank, size(), area_).first);
}

int64_t* ShmHub::numbers_of(int rank) const {
  auto* after = reinterpret_cast<std::byte*>(&control(rank)) + sizeof(Control);
  return reinterpret_cast<int64_t*>(after + first_round_ % 2 * numbers_bytes(size()));
}

ShmMailSlot& ShmHub::mail(int from, int to) const {
  auto* after = reinterpret_cast<std::byte*>(&control(from)) + sizeof(Control) + 2 * numbers_bytes(size());
  return reinterpret_cast<ShmMailSlot*>(after)[to];
}

const ProcessId& ShmHub::process(int rank) const { return control(rank).process; }

std::byte* ShmHub::area(int rank, uint32_t round) const {
  return reinterpret_cast<std::byte*>(&control(rank)) + control_bytes(size(), sizeof(Control)) + round % 2 * room_;
}

size_t ShmHub::room(int slots) const { return room_ / static_cast<size_t>(slots) / kLine * kLine; }

// Two areas and one number per rank are enough: who comes to round k has read what was staged for round k - 1, so when
// all have come to k, the areas of k - 1 are free for k + 1.
void ShmHub::arrive_and_wait(const char* operation) {
  ++round_;
  control(rank()).arrived.raise(round_);
  Clock::time_point end;
  for (int i = 1; i < size(); ++i) {
    const int peer = (rank() + i) % size();
    wait_until(end, operation, peer, control(peer).arrived, round_);
  }
}

void ShmHub::meet(const Call& call) {
  if (broken_ || has_left(rank())) refuse_closed(name_of(call.kind));
  first_round_ = round_;
  write_numbers(call, size(), numbers_of(rank()));
  arrive_and_wait(name_of(call.kind));
  std::array<const int64_t*, 64> few{};
  std::vector<const int64_t*> many;
  const int64_t** all = few.data();
  if (static_cast<size_t>(size()) > few.size()) {
    many.resize(static_cast<size_t>(size()));
    all = many.data();
  }
  for (int i = 0; i < size(); ++i) all[i] = numbers_of(i);
  if (!fit_together(all, size())) tell_apart(call);
}

void ShmHub::meet_again(const char* operation) { arrive_and_wait(operation); }

// Every rank has found that the calls differ, and says in one more round what it called.
void ShmHub::tell_apart(const Call& call) {
  const std::string mine = describe_with_purpose(call);
  const size_t length = std::min(mine.size(), room() - 1);
  std::memcpy(stage(), mine.data(), length);
  stage()[length] = std::byte{0};
  arrive_and_wait(name_of(call.kind));
  std::vector<CallShape> shapes(static_cast<size_t>(size()));
  for (int i = 0; i < size(); ++i) {
    shapes[static_cast<size_t>(i)].description = reinterpret_cast<const char*>(staged(i));
  }
  ErrorText text(name_of(call.kind), kDifferentCalls);
  for (const auto& [who, what] : calls_by_rank(members_.ranks, shapes)) text.fact(who, what);
  throw_comm_error(text.help(kDifferentCallsHelp));
}

void ShmHub::wait(const char* operation, int peer, ShmSignal& signal, uint32_t least) {
  Clock::time_point end;
  wait_until(end, operation, peer, signal, least);
}

// `end` is known once somebody looks at the clock.
void ShmHub::wait_until(Clock::time_point& end, const char* operation, int peer, ShmSignal& signal, uint32_t least) {
  wait_for(signal, least, patience_, [&] {
    if (end == Clock::time_point()) end = Clock::now() + members_.timeout;
    // It may have raised the signal before it left.
    const bool left = has_left(peer) || !process(peer).alive();
    if (signal.reached(least)) return;
    if (broken_ || has_left(rank())) refuse_closed(operation);  // another thread may have let go of the group
    if (left) say_lost(operation, peer);
    if (Clock::now() < end) return;
    const bool meeting = &signal == &control(peer).arrived;
    std::vector<int64_t> missing;
    for (int i = 0; i < size(); ++i) {
      if (i == peer || (meeting && !control(i).arrived.reached(least)))
        missing.push_back(members_.ranks[static_cast<size_t>(i)]);
    }
    say_late(operation, missing);
  });
}

void ShmHub::say_lost(const char* operation, int peer) {
  leave("");
  broken_ = true;
  const int64_t name = members_.ranks[static_cast<size_t>(peer)];
  if (const std::string reason(control(peer).reason.data()); has_left(peer) && !reason.empty()) {
    throw_comm_error(
        ErrorText(operation, failed_problem(name)).fact(fmt::format("rank {}", name), reason).help(failed_help(name)));
  }
  const std::string cause = fmt::format("shared memory closed by peer, process {}", process(peer).pid);
  if (!members_.whole_errors) throw_comm_error(cause);
  throw_comm_error(ErrorText(operation, lost_problem({name}))
                       .fact("group", "ranks " + rank_list(members_.ranks))
                       .fact("cause", cause)
                       .help(kLostHelp));
}

void ShmHub::say_late(const char* operation, const std::vector<int64_t>& missing) {
  leave("");
  broken_ = true;
  const std::string waited = seconds_text(members_.timeout);
  if (!members_.whole_errors) throw_comm_error(missing_problem(missing) + " within " + waited);
  throw_comm_error(ErrorText(operation, missing_problem(missing))
                       .fact("waited", waited)
                       .fact("group", "ranks " + rank_list(members_.ranks))
                       .help(kMissingHelp));
}

void ShmHub::refuse_closed(const char* operation) const {
  throw_comm_error(ErrorText(operation, "the group broke in an earlier call")
                       .fact("group", "ranks " + rank_list(members_.ranks))
                       .help("start the program again"));
}

bool ShmHub::has_left(int rank) const { return control(rank).left.load(std::memory_order_acquire) != 0; }

void ShmHub::leave(const std::string& reason) noexcept {
  if (segment_.empty() || has_left(rank())) return;
  if (process(rank()).pid != ::getpid()) return;  // a process that was forked is not the rank
  Control& mine = control(rank());
  const size_t length = std::min(reason.size(), kReason - 1);
  std::memcpy(mine.reason.data(), reason.data(), length);
  mine.left.store(1, std::memory_order_seq_cst);
  mine.arrived.nudge();
  for (int i = 0; i < size(); ++i) mail(rank(), i).posted.nudge();
}

}  // namespace sherd::detail
