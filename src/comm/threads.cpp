#include "comm/threads.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/copy.h"
#include "comm/reducer.h"

namespace sherd::detail {
namespace {

// Up to this many elements on a GPU every rank reduces the whole tensor: one meeting fewer beats sharing the work.
constexpr int64_t kSmall = 16 * 1024;

constexpr size_t kLine = 64;

// What a rank reads or reduces once and writes to all: it stays in its cache meanwhile.
constexpr size_t kPiece = size_t{128} * 1024;

bool plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// From where to where the share of a rank goes, of whole lines.
std::pair<size_t, size_t> share_of(size_t total, int rank, int ranks) {
  const size_t share = (total / static_cast<size_t>(ranks) + kLine) / kLine * kLine;
  const size_t begin = std::min(total, static_cast<size_t>(rank) * share);
  return {begin, std::min(total, begin + share)};
}

// Ranks read in different orders, so that they do not all read one rank's memory at once.
template <class F>
void for_each_from(int first, size_t count, F&& f) {
  for (size_t i = 0; i < count; ++i) f((static_cast<size_t>(first) + i) % count);
}

}  // namespace

void ThreadsBackend::run(const Call& call) {
  const bool staged = hub_->meet(getRank(), call);
  guarded(call, [&] {
    if (staged) {
      take(call);
    } else if (call.kind == Collective::all_reduce) {
      all_reduce(call);
    } else {
      move(call);
      hub_->part(getRank());  // until here others read this rank's inputs
    }
  });
}

// Each element is copied once, from where it lies on one rank to where it belongs on another.
void ThreadsBackend::run_runs(const Call& call, const RunMove& move) {
  size_t bytes = 0;
  for (const ByteRuns& runs : move.takes) bytes += runs.size();
  // Of a gather all ranks take the same bytes, and so come to the same answer.
  const bool by_shares = call.kind == Collective::all_gather && best_for(bytes) == CopyTo::memory;
  hub_->meet(getRank(), call, move.gives, by_shares ? move.takes : std::vector<ByteRuns>());
  guarded(call, [&] {
    if (by_shares && gather_runs_by_shares(bytes)) return hub_->part(getRank());
    const size_t block = call.kind == Collective::all_gather ? 0 : static_cast<size_t>(getRank());
    for_each_from(getRank(), move.takes.size(), [&](size_t i) {
      copy_all(move.takes[i], runs_from(static_cast<int>(i), block), best_for_gathered(bytes));
    });
    hub_->part(getRank());
  });
}

// What a rank gives as `block`, in tensors or not.
ByteRuns ThreadsBackend::runs_from(int rank, size_t block) const {
  const std::vector<ByteRuns>& runs = hub_->runs(getRank(), rank);
  return runs.empty() ? ByteRuns::to_read(hub_->call(getRank(), rank).inputs[block]) : runs[block];
}

std::vector<at::Tensor> ThreadsBackend::inputs_of_all(size_t block) const {
  std::vector<at::Tensor> parts;
  for (int i = 0; i < getSize(); ++i) parts.push_back(hub_->call(getRank(), i).inputs.at(block).view({-1}));
  return parts;
}

// All bytes that a rank takes in one call decide whether they fit into its caches.
void ThreadsBackend::copy_block(const Call& call, size_t output, int from, size_t input) const {
  const at::Tensor& to = call.outputs[output];
  if (!hub_->runs(getRank(), from).empty()) {
    const ByteRuns given = runs_from(from, input);
    return copy_all(ByteRuns::to_write(to), given, best_for_gathered(given.size()));
  }
  const at::Tensor& given = hub_->call(getRank(), from).inputs[input];
  if (!plain(to) || !plain(given)) return copy_elements(to, given);
  if (to.const_data_ptr() == given.const_data_ptr()) return;
  size_t bytes = 0;
  for (const at::Tensor& tensor : call.outputs) bytes += tensor.nbytes();
  copy_bytes(to.mutable_data_ptr(), given.const_data_ptr(), to.nbytes(), best_for_gathered(bytes));
}

// Where all results are to hold the same bytes, many of them: each rank writes its share of these to all results, so
// that they are read from memory once, and not by every rank again. `places[i]` is where `given[i]` goes on each rank.
void ThreadsBackend::share_out(const std::vector<at::Tensor>& given,
                               const std::vector<std::vector<at::Tensor>>& places) const {
  size_t total = 0;
  for (const at::Tensor& tensor : given) total += tensor.nbytes();
  const auto [begin, end] = share_of(total, getRank(), getSize());
  size_t at = 0;  // of given[i] among all bytes
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(given[i].const_data_ptr());
    const size_t last = std::min(end, at + given[i].nbytes());
    for (size_t here = std::max(begin, at); here < last; here += kPiece) {
      for (const at::Tensor& place : places[i]) {
        auto* to = static_cast<std::byte*>(place.mutable_data_ptr());
        if (to != from) copy_bytes(to + (here - at), from + (here - at), std::min(kPiece, last - here), CopyTo::memory);
      }
    }
    at += given[i].nbytes();
  }
}

// The same for elements that lie in runs; false where a rank shows no places for what it takes.
bool ThreadsBackend::gather_runs_by_shares(size_t bytes) const {
  const int me = getRank();
  for (int k = 0; k < getSize(); ++k) {
    if (hub_->places(me, k).empty()) return false;
  }
  const auto [begin, end] = share_of(bytes, me, getSize());
  size_t at = 0;  // of what rank i gives among all bytes
  for (int i = 0; i < getSize(); ++i) {
    const ByteRuns& given = hub_->runs(me, i).front();
    const size_t first = std::max(begin, at), last = std::min(end, at + given.size());
    if (first < last) {
      RunCursor from(given);
      from.pass(first - at);
      std::vector<RunCursor> to;
      for (int k = 0; k < getSize(); ++k) {
        to.emplace_back(hub_->places(me, k)[static_cast<size_t>(i)]);
        to.back().pass(first - at);
      }
      for (size_t here = first; here < last; here += kPiece) {
        const size_t now = std::min(kPiece, last - here);
        for (RunCursor& place : to) {
          RunCursor again = from;
          copy_between(place, again, now, CopyTo::memory);
        }
        from.pass(now);
      }
    }
    at += given.size();
  }
  return true;
}

// An all_gather of many bytes, all of them laid out plainly on every rank; false where it is another one.
bool ThreadsBackend::gather_by_shares(const Call& call) const {
  size_t bytes = 0;
  for (const at::Tensor& tensor : call.outputs) bytes += tensor.nbytes();
  if (best_for(bytes) != CopyTo::memory) return false;
  std::vector<at::Tensor> given;
  std::vector<std::vector<at::Tensor>> places(call.outputs.size());
  for (int i = 0; i < getSize(); ++i) {
    if (!hub_->runs(getRank(), i).empty()) return false;
    const Call& other = hub_->call(getRank(), i);
    given.push_back(other.inputs[0]);
    for (size_t k = 0; k < places.size(); ++k) places[k].push_back(other.outputs[k]);
    if (!plain(other.inputs[0]) || !std::all_of(other.outputs.begin(), other.outputs.end(), plain)) return false;
  }
  share_out(given, places);
  return true;
}

// The root would have nothing to do: it writes a share of what each of the others takes.
void ThreadsBackend::copy_from_root(const Call& call) const {
  const at::Tensor& given = hub_->call(getRank(), call.root).outputs.front();
  const bool root = call.root == getRank();
  const auto bytes = given.nbytes();
  bool all_plain = true;
  for (int i = 0; i < getSize(); ++i) all_plain = all_plain && plain(hub_->call(getRank(), i).outputs.front());
  if (!all_plain) {
    if (!root) copy_elements(call.outputs.front(), given);
    return;
  }
  if (best_for(bytes) == CopyTo::memory) {
    std::vector<at::Tensor> places;
    for (int i = 0; i < getSize(); ++i) places.push_back(hub_->call(getRank(), i).outputs.front());
    return share_out({given}, {places});
  }
  const size_t share = bytes / static_cast<size_t>(getSize()) / kLine * kLine;
  const auto copy = [&](const at::Tensor& to, size_t begin, size_t end) {
    auto* target = static_cast<std::byte*>(to.mutable_data_ptr());
    const auto* source = static_cast<const std::byte*>(given.const_data_ptr());
    if (target != source) copy_bytes(target + begin, source + begin, end - begin, best_for(bytes));
  };
  if (!root) return copy(call.outputs.front(), share, bytes);
  for (int i = 0; i < getSize(); ++i) {
    if (i != call.root) copy(hub_->call(getRank(), i).outputs.front(), 0, share);
  }
}

void ThreadsBackend::move(const Call& call) {
  const auto me = static_cast<size_t>(getRank());
  const bool root = call.root == getRank();
  switch (call.kind) {
    case Collective::all_gather:
      if (gather_by_shares(call)) return;
      [[fallthrough]];
    case Collective::gather:
      for_each_from(getRank(), call.outputs.size(), [&](size_t i) { copy_block(call, i, static_cast<int>(i), 0); });
      return;
    case Collective::all_to_all:
      for_each_from(getRank(), call.outputs.size(), [&](size_t i) { copy_block(call, i, static_cast<int>(i), me); });
      return;
    case Collective::scatter:
      return copy_block(call, 0, call.root, me);
    case Collective::broadcast:
      return copy_from_root(call);
    case Collective::reduce_scatter:
      reduce_into(call.outputs.front().view({-1}), inputs_of_all(me), call.op);
      return;
    case Collective::reduce: {
      if (!root) return;
      reduce_into(call.outputs.front().view({-1}), inputs_of_all(0), call.op);
      return;
    }
    default:
      return;
  }
}

// What the other ranks gave lies in copies.
void ThreadsBackend::take(const Call& call) {
  const int me = getRank();
  const auto given = [&](int rank) -> const void* {
    if (rank != me) return hub_->staged(me, rank, call);
    const bool blocks = call.inputs.size() > 1;
    return call.inputs[blocks ? static_cast<size_t>(me) : 0].const_data_ptr();
  };
  const auto copy_from = [&](int rank, const at::Tensor& output) {
    const void* from = given(rank);
    if (output.numel() > 0 && from != output.const_data_ptr()) {
      std::memcpy(output.mutable_data_ptr(), from, output.nbytes());
    }
  };
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::gather:
    case Collective::all_to_all:
      for (size_t i = 0; i < call.outputs.size(); ++i) copy_from(static_cast<int>(i), call.outputs[i]);
      return;
    case Collective::broadcast:
      if (call.root == me) return;
      [[fallthrough]];
    case Collective::scatter:
      return copy_from(call.root, call.outputs.front());
    case Collective::reduce:
      if (call.root != me) return;
      [[fallthrough]];
    case Collective::all_reduce:
    case Collective::reduce_scatter: {
      const at::Tensor& output = call.outputs.front();
      Reducer reducer(output, call.op, getSize());
      for (int i = 0; i < getSize(); ++i) reducer.part(i) = given(i);
      return reducer.into(static_cast<std::byte*>(output.mutable_data_ptr()), output.nbytes());
    }
    default:
      return;
  }
}

void ThreadsBackend::all_reduce(const Call& call) {
  if (reduce_by_shares(call)) return hub_->part(getRank());
  const at::Tensor mine = call.outputs.front().view({-1});
  const std::vector<at::Tensor> parts = inputs_of_all(0);
  if (mine.numel() <= kSmall && !mine.device().is_cpu()) {
    const at::Tensor sum = at::empty_like(mine);
    reduce_into(sum, parts, call.op);
    hub_->part(getRank());
    mine.copy_(sum);
    return;
  }
  // Rank r reduces slice r in place: in this phase it alone touches anybody's slice r. Then all copy the slices.
  const int64_t step = (mine.numel() + getSize() - 1) / getSize();
  const auto begin = [&](int i) { return std::min(mine.numel(), i * step); };
  const auto numel = [&](int i) { return begin(i + 1) - begin(i); };
  const auto slice = [&](const at::Tensor& tensor, int i) { return tensor.narrow(0, begin(i), numel(i)); };
  std::vector<at::Tensor> slices;
  for (const at::Tensor& part : parts) slices.push_back(slice(part, getRank()));
  reduce_into(slice(mine, getRank()), slices, call.op);
  hub_->meet_again(getRank());
  for (int i = 0; i < getSize(); ++i) {
    if (i != getRank() && numel(i) > 0) slice(mine, i).copy_(slice(parts[static_cast<size_t>(i)], i));
  }
  hub_->part(getRank());
}

// Where all tensors lie in memory in order: each rank reduces its share of the elements, and writes it to all. Nobody
// else touches this share on any rank. False where they do not lie so.
bool ThreadsBackend::reduce_by_shares(const Call& call) const {
  const int me = getRank();
  for (int i = 0; i < getSize(); ++i) {
    if (hub_->plain(me, i) == nullptr) return false;
  }
  const size_t total = call.outputs.front().nbytes();
  const auto n = static_cast<size_t>(getSize());
  // Of whole lines, so that two ranks do not write to one.
  const size_t share = ((total + n - 1) / n + kLine - 1) / kLine * kLine;
  const size_t begin = std::min(total, static_cast<size_t>(me) * share);
  const size_t end = std::min(total, begin + share);
  const CopyTo where = best_for(total) == CopyTo::memory ? CopyTo::memory : best_for_others(getSize(), total);
  std::byte* const mine = hub_->plain(me, me);
  Reducer reducer(call.outputs.front(), call.op, getSize());
  for (size_t at = begin; at < end; at += kPiece) {
    const size_t bytes = std::min(kPiece, end - at);
    for (int i = 0; i < getSize(); ++i) reducer.part(i) = hub_->plain(me, i) + at;
    reducer.into(mine + at, bytes);
    for (int i = 0; i < getSize(); ++i) {
      std::byte* const to = hub_->plain(me, i);
      if (to != mine) copy_bytes(to + at, mine + at, bytes, where);
    }
  }
  return true;
}

std::function<void()> ThreadsBackend::start_receive(const at::Tensor& tensor, int from, int tag) {
  const uint64_t turn = hub_->take_turn(from, getRank(), tag);
  return [hub = hub_, me = getRank(), tensor, from, tag, turn] {
    const at::Tensor message = hub->take(from, me, tag, turn);
    check_fits(message, tensor);
    copy_elements(tensor, message);
  };
}

}  // namespace sherd::detail
