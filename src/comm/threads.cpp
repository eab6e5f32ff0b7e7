#include "comm/threads.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>

#include "comm/errors.h"
#include "comm/reducer.h"

namespace sherd::detail {
namespace {

// Up to this many elements on a GPU every rank reduces the whole tensor: one meeting fewer beats sharing the work.
constexpr int64_t kSmall = 16 * 1024;

}  // namespace

void ThreadsBackend::run(const Call& call) {
  const bool staged = hub_->meet(getRank(), call);
  try {
    if (staged) {
      take(call);
    } else if (call.kind == Collective::all_reduce) {
      all_reduce(call);
    } else {
      move(call);
      hub_->part(getRank());  // until here others read this rank's inputs
    }
  } catch (const c10::DistBackendError&) {
    throw;
  } catch (const std::exception& error) {  // no memory, say: the others must not wait for this rank
    hub_->fail(hub_->world_rank(getRank()), message_of(error));
    throw_comm_error(ErrorText(name_of(call.kind), "this rank cannot go on")
                         .fact("call", describe(call))
                         .fact("cause", message_of(error))
                         .help("mend the cause; the other ranks stopped because of it"));
  }
}

std::vector<at::Tensor> ThreadsBackend::inputs_of_all(size_t block) const {
  std::vector<at::Tensor> parts;
  for (int i = 0; i < getSize(); ++i) parts.push_back(hub_->call(getRank(), i).inputs.at(block).view({-1}));
  return parts;
}

void ThreadsBackend::move(const Call& call) {
  const auto me = static_cast<size_t>(getRank());
  const bool root = call.root == getRank();
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::gather:
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        copy_elements(call.outputs[i], hub_->call(getRank(), static_cast<int>(i)).inputs.front());
      }
      return;
    case Collective::all_to_all:
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        copy_elements(call.outputs[i], hub_->call(getRank(), static_cast<int>(i)).inputs[me]);
      }
      return;
    case Collective::scatter:
      copy_elements(call.outputs.front(), hub_->call(getRank(), call.root).inputs[me]);
      return;
    case Collective::broadcast:
      if (!root) copy_elements(call.outputs.front(), hub_->call(getRank(), call.root).inputs.front());
      return;
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

// What the ranks gave lies in copies.
void ThreadsBackend::take(const Call& call) {
  const int me = getRank();
  const auto copy_from = [&](int rank, const at::Tensor& output) {
    if (output.numel() > 0) std::memcpy(output.mutable_data_ptr(), hub_->staged(me, rank), output.nbytes());
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
      for (int i = 0; i < getSize(); ++i) reducer.part(i) = hub_->staged(me, i);
      return reducer.into(static_cast<std::byte*>(output.mutable_data_ptr()), output.nbytes());
    }
    default:
      return;
  }
}

void ThreadsBackend::all_reduce(const Call& call) {
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
  const auto plain = [](const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); };
  const bool all_plain = plain(mine) && std::all_of(parts.begin(), parts.end(), plain);
  const auto width = static_cast<int64_t>(mine.element_size());
  const auto place = [&](const at::Tensor& tensor, int i) {
    return static_cast<std::byte*>(tensor.mutable_data_ptr()) + begin(i) * width;
  };
  if (all_plain) {
    Reducer reducer(mine, call.op, getSize());
    for (int i = 0; i < getSize(); ++i) reducer.part(i) = place(parts[static_cast<size_t>(i)], getRank());
    reducer.into(place(mine, getRank()), static_cast<size_t>(numel(getRank()) * width));
  } else {
    std::vector<at::Tensor> slices;
    for (const at::Tensor& part : parts) slices.push_back(slice(part, getRank()));
    reduce_into(slice(mine, getRank()), slices, call.op);
  }
  hub_->meet_again(getRank());
  for (int i = 0; i < getSize(); ++i) {
    if (i == getRank() || numel(i) == 0) continue;
    const at::Tensor& part = parts[static_cast<size_t>(i)];
    if (all_plain) {
      std::memcpy(place(mine, i), place(part, i), static_cast<size_t>(numel(i) * width));
    } else {
      slice(mine, i).copy_(slice(part, i));
    }
  }
  hub_->part(getRank());
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
