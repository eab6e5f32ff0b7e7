#include "comm/shm.h"

#include <algorithm>

#include "comm/byte_runs.h"
#include "comm/call_shape.h"
#include "comm/copy.h"
#include "comm/reducer.h"

namespace sherd::detail {
namespace {

// Up to this many bytes every rank reduces the whole tensor: one round fewer beats sharing the work.
constexpr size_t kSmall = size_t{32} * 1024;
constexpr size_t kLine = 64;

const std::byte* data_of(const at::Tensor& tensor) { return static_cast<const std::byte*>(tensor.const_data_ptr()); }
std::byte* writable(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

// Piece `t` of `total` bytes that are cut every `step`.
struct Piece {
  Piece(size_t total, size_t step, size_t t) : begin(std::min(total, t * step)), size(std::min(step, total - begin)) {}
  size_t begin;
  size_t size;
};

void copy_piece(std::byte* to, const std::byte* from, size_t bytes, CopyTo where = CopyTo::cache) {
  if (bytes > 0 && to != from) copy_bytes(to, from, bytes, where);
}

// The blocks of one side of a call, each with the place up to which it was copied.
class Blocks {
 public:
  // Where they lie in one piece each, or in runs.
  Blocks(const std::vector<at::Tensor>& tensors, const std::vector<ByteRuns>* runs,
         ByteRuns (*bytes_of)(const at::Tensor&)) {
    if (runs == nullptr) {
      for (const at::Tensor& tensor : tensors) own_.push_back(bytes_of(tensor));
    }
    const auto begin = [&](const ByteRuns& block) {
      cursors_.emplace_back(block);
      bytes_ += block.size();
    };
    if (runs == nullptr) {
      std::for_each(own_.begin(), own_.end(), begin);
    } else {
      std::for_each(runs->begin(), runs->end(), begin);
    }
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  bool empty() const { return cursors_.empty(); }
  size_t bytes() const { return bytes_; }
  RunCursor& operator[](int block) { return cursors_[static_cast<size_t>(block)]; }

 private:
  static constexpr size_t kFew = 4;  // without a place on the heap
  c10::SmallVector<ByteRuns, kFew> own_;
  c10::SmallVector<RunCursor, kFew> cursors_;
  size_t bytes_ = 0;
};

struct GivenBlocks : Blocks {
  GivenBlocks(const Call& call, const RunMove* move)
      : Blocks(call.inputs, move != nullptr ? &move->gives : nullptr, ByteRuns::to_read) {}
};
struct TakenBlocks : Blocks {
  TakenBlocks(const Call& call, const RunMove* move)
      : Blocks(call.outputs, move != nullptr ? &move->takes : nullptr, ByteRuns::to_write) {}
};

size_t rounds_for(size_t bytes, size_t step) { return std::max<size_t>(1, (bytes + step - 1) / step); }

// One tensor of a call says what the bytes mean.
const at::Tensor& representative(const Call& call) {
  return call.inputs.empty() ? call.outputs.front() : call.inputs.front();
}

// Ranks read in different orders, so that they do not all read one rank's memory at once.
template <class F>
void for_each_other(const ShmHub& hub, F&& f) {
  for (int i = 1; i < hub.size(); ++i) f((hub.rank() + i) % hub.size());
}

// The place in `from`'s area for what it gives to `to`; it gives itself nothing.
size_t slot(const ShmHub& hub, int from, int to) {
  return static_cast<size_t>((to - from - 1 + hub.size()) % hub.size());
}

}  // namespace

ShmBackend::ShmBackend(std::shared_ptr<ShmHub> hub)
    : SyncBackend(hub->rank(), hub->size()), hub_(std::move(hub)), mail_(std::make_shared<ShmMail>(hub_)) {}

ShmBackend::~ShmBackend() {
  hub_->leave("");
  if (!aborted_ && !hub_->broken()) mail_->linger(hub_->members().timeout);
}

void ShmBackend::abort() {
  aborted_ = true;
  hub_->leave("");
}

void ShmBackend::shutdown() { hub_->leave(""); }

void ShmBackend::run(const Call& call) {
  check_blocks_per_rank(call, hub_->members().ranks);
  check_on_cpu(call);
  guarded(call, [&] { with_contiguous(call, [&](const Call& dense) { move(dense); }); });
}

void ShmBackend::run_runs(const Call& call, const RunMove& move) {
  check_blocks_per_rank(call, hub_->members().ranks);
  guarded(call, [&] { call.kind == Collective::all_gather ? run_all_gather(call, &move) : run_exchange(call, &move); });
}

void ShmBackend::move(const Call& call) {
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::gather:
      return run_all_gather(call);
    case Collective::broadcast:
      return run_broadcast(call);
    case Collective::all_to_all:
    case Collective::scatter:
      return run_exchange(call);
    case Collective::reduce_scatter:
      return run_reduce_scatter(call);
    case Collective::all_reduce:
    case Collective::reduce:
      return call.inputs.front().nbytes() <= std::min(kSmall, hub_->room()) ? run_all_reduce_small(call)
                                                                            : run_all_reduce(call);
    default:
      return hub_->meet(call);
  }
}

// stage(t) writes what this rank gives in round t, take(t) reads what the others gave. `rounds` is asked when all have
// met: the others' sizes are known then.
template <class Rounds, class Stage, class Take>
void ShmBackend::in_rounds(const Call& call, Rounds rounds, Stage stage, Take take) {
  stage(size_t{0});
  hub_->meet(call);
  const size_t n = rounds();
  take(size_t{0});
  for (size_t t = 1; t < n; ++t) {
    stage(t);
    hub_->meet_again(name_of(call.kind));
    take(t);
  }
}

void ShmBackend::run_all_gather(const Call& call, const RunMove* move) {
  const size_t element = representative(call).element_size();
  const size_t step = hub_->room();
  GivenBlocks in(call, move);
  GivenBlocks own(call, move);
  TakenBlocks out(call, move);
  const CopyTo where = best_for_gathered(out.bytes());
  const CopyTo staging = best_for_others(getSize(), in.bytes());
  const auto rounds = [&] {
    int64_t most = 0;
    for (int i = 0; i < getSize(); ++i) most = std::max(most, hub_->gives(i, 0));
    return rounds_for(static_cast<size_t>(most) * element, step);
  };
  const auto stage = [&](size_t) { in[0].get(hub_->stage(), std::min(step, in[0].left()), staging); };
  const auto take = [&](size_t) {
    if (out.empty()) return;
    for_each_other(*hub_, [&](int i) { out[i].put(hub_->staged(i), std::min(step, out[i].left()), where); });
    copy_between(out[getRank()], own[0], std::min(step, own[0].left()), where);
  };
  in_rounds(call, rounds, stage, take);
}

void ShmBackend::run_broadcast(const Call& call) {
  const at::Tensor& tensor = call.outputs.front();
  const bool gives = call.root == getRank();
  const size_t step = hub_->room();
  const CopyTo where = best_for(tensor.nbytes());
  const CopyTo staging = best_for_others(getSize(), tensor.nbytes());
  const auto rounds = [&] { return rounds_for(tensor.nbytes(), step); };
  const auto stage = [&](size_t t) {
    const Piece piece(tensor.nbytes(), step, t);
    if (gives) copy_piece(hub_->stage(), data_of(tensor) + piece.begin, piece.size, staging);
  };
  const auto take = [&](size_t t) {
    const Piece piece(tensor.nbytes(), step, t);
    if (!gives) copy_piece(writable(tensor) + piece.begin, hub_->staged(call.root), piece.size, where);
  };
  in_rounds(call, rounds, stage, take);
}

// all_to_all, and scatter, in which the root alone gives.
void ShmBackend::run_exchange(const Call& call, const RunMove* move) {
  const bool all = call.kind == Collective::all_to_all;
  const int me = getRank();
  const size_t element = representative(call).element_size();
  const size_t step = hub_->room(getSize() - 1);
  GivenBlocks in(call, move);
  TakenBlocks out(call, move);
  const CopyTo where = best_for_gathered(out.bytes());
  const CopyTo staging = best_for_others(getSize(), in.bytes());
  const auto rounds = [&] {
    int64_t most = 0;
    for (int i = 0; i < getSize(); ++i) {
      for (int k = 0; k < getSize(); ++k) {
        if (i != k) most = std::max(most, hub_->gives(i, k));
      }
    }
    return rounds_for(static_cast<size_t>(most) * element, step);
  };
  const auto stage = [&](size_t) {
    if (in.empty()) return;
    for_each_other(*hub_, [&](int to) {
      in[to].get(hub_->stage() + slot(*hub_, me, to) * step, std::min(step, in[to].left()), staging);
    });
  };
  const auto take = [&](size_t t) {
    const auto from = [&](int rank) {
      RunCursor& block = out[all ? rank : 0];
      block.put(hub_->staged(rank) + slot(*hub_, rank, me) * step, std::min(step, block.left()), where);
    };
    if (all) {
      for_each_other(*hub_, from);
    } else if (call.root != me) {
      from(call.root);
    }
    if (t == 0 && !in.empty()) copy_between(out[all ? me : 0], in[me], in[me].left(), where);
  };
  in_rounds(call, rounds, stage, take);
}

void ShmBackend::run_reduce_scatter(const Call& call) {
  const int me = getRank();
  const at::Tensor& own = call.inputs[static_cast<size_t>(me)];
  const at::Tensor& out = call.outputs.front();
  const size_t step = hub_->room(getSize() - 1);
  const CopyTo staging = best_for_others(getSize(), out.nbytes() * static_cast<size_t>(getSize()));
  Reducer reducer(out, call.op, getSize());
  const auto rounds = [&] {
    int64_t most = 0;
    for (int k = 0; k < getSize(); ++k) most = std::max(most, hub_->gives(0, k));
    return rounds_for(static_cast<size_t>(most) * out.element_size(), step);
  };
  const auto stage = [&](size_t t) {
    for_each_other(*hub_, [&](int to) {
      const at::Tensor& in = call.inputs[static_cast<size_t>(to)];
      const Piece piece(in.nbytes(), step, t);
      copy_piece(hub_->stage() + slot(*hub_, me, to) * step, data_of(in) + piece.begin, piece.size, staging);
    });
  };
  const auto take = [&](size_t t) {
    const Piece piece(out.nbytes(), step, t);
    for_each_other(*hub_, [&](int i) { reducer.part(i) = hub_->staged(i) + slot(*hub_, i, me) * step; });
    reducer.part(me) = data_of(own) + piece.begin;
    reducer.into(writable(out) + piece.begin, piece.size);
  };
  in_rounds(call, rounds, stage, take);
}

void ShmBackend::run_all_reduce_small(const Call& call) {
  const at::Tensor& tensor = call.outputs.front();
  copy_piece(hub_->stage(), data_of(tensor), tensor.nbytes());
  hub_->meet(call);
  if (call.kind == Collective::reduce && call.root != getRank()) return;
  Reducer reducer(tensor, call.op, getSize());
  for (int i = 0; i < getSize(); ++i) reducer.part(i) = hub_->staged(i);
  reducer.into(writable(tensor), tensor.nbytes());
}

// A chunk has a slice for each rank. In round t a rank stages, for the others, their slices of chunk t; in the place of
// its own slice stands what it made of its slice of chunk t - 1.
void ShmBackend::run_all_reduce(const Call& call) {
  const int me = getRank();
  const auto n = static_cast<size_t>(getSize());
  const at::Tensor& tensor = call.outputs.front();
  std::byte* const data = writable(tensor);
  const bool wanted = call.kind == Collective::all_reduce || call.root == me;
  const size_t step = hub_->room(getSize());
  const size_t chunks = rounds_for(tensor.nbytes(), n * step);
  const CopyTo where = best_for(tensor.nbytes());
  const CopyTo staging = best_for_others(getSize(), tensor.nbytes());
  Reducer reducer(tensor, call.op, getSize());
  // Where slice i of chunk t lies in the tensor. The last chunk is cut as evenly as the others.
  const auto slice = [&](size_t t, int i) {
    const Piece chunk(tensor.nbytes(), n * step, t);
    Piece piece(chunk.size, ((chunk.size + n - 1) / n + kLine - 1) / kLine * kLine, static_cast<size_t>(i));
    piece.begin += chunk.begin;
    return piece;
  };
  const auto place = [&](int i) { return static_cast<size_t>(i) * step; };
  const auto stage = [&](size_t t) {
    if (t == chunks) return;
    for_each_other(*hub_, [&](int to) {
      const Piece piece = slice(t, to);
      copy_piece(hub_->stage() + place(to), data + piece.begin, piece.size, staging);
    });
  };
  const auto take = [&](size_t t) {
    if (t < chunks) {
      const Piece piece = slice(t, me);
      for_each_other(*hub_, [&](int i) { reducer.part(i) = hub_->staged(i) + place(me); });
      reducer.part(me) = data + piece.begin;
      reducer.into(hub_->stage() + place(me), piece.size);
      if (wanted) copy_piece(data + piece.begin, hub_->stage() + place(me), piece.size, where);
    }
    if (t == 0 || !wanted) return;
    for_each_other(*hub_, [&](int i) {
      const Piece piece = slice(t - 1, i);
      copy_piece(data + piece.begin, hub_->staged(i) + place(i), piece.size, where);
    });
  };
  in_rounds(
      call, [&] { return chunks + 1; }, stage, take);
}

void ShmBackend::run_send(const at::Tensor& tensor, int to, int tag) { mail_->post(to, tag, tensor); }

std::function<void()> ShmBackend::start_receive(const at::Tensor& tensor, int from, int tag) {
  const uint64_t turn = mail_->take_turn(from, tag);
  return [mail = mail_, tensor, from, tag, turn] { mail->take(from, tag, turn, tensor); };
}

}  // namespace sherd::detail
