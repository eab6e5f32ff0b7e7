#include "comm/threads.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

// Below this many elements every rank reduces the whole tensor: one meeting fewer beats sharing the work.
constexpr int64_t kSmall = 16 * 1024;

}  // namespace

void ThreadsBackend::run(const Call& call) {
  hub_->meet(getRank(), call);
  if (call.kind == Collective::barrier) return;
  try {
    if (call.kind == Collective::all_reduce) {
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
  for (int i = 0; i < getSize(); ++i) parts.push_back(hub_->call(i).inputs.at(block).view({-1}));
  return parts;
}

void ThreadsBackend::move(const Call& call) {
  const auto me = static_cast<size_t>(getRank());
  const bool root = call.root == getRank();
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::gather:
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        copy_elements(call.outputs[i], hub_->call(static_cast<int>(i)).inputs.front());
      }
      return;
    case Collective::all_to_all:
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        copy_elements(call.outputs[i], hub_->call(static_cast<int>(i)).inputs[me]);
      }
      return;
    case Collective::scatter:
      copy_elements(call.outputs.front(), hub_->call(call.root).inputs[me]);
      return;
    case Collective::broadcast:
      if (!root) copy_elements(call.outputs.front(), hub_->call(call.root).inputs.front());
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

void ThreadsBackend::all_reduce(const Call& call) {
  const at::Tensor mine = call.outputs.front().view({-1});
  const std::vector<at::Tensor> parts = inputs_of_all(0);
  if (mine.numel() <= kSmall) {
    const at::Tensor sum = at::empty_like(mine);
    reduce_into(sum, parts, call.op);
    hub_->part(getRank());
    mine.copy_(sum);
    return;
  }
  // Rank r reduces slice r in place: in this phase it alone touches anybody's slice r. Then all copy the slices.
  const int64_t step = (mine.numel() + getSize() - 1) / getSize();
  const auto slice = [&](const at::Tensor& tensor, int i) {
    const int64_t begin = std::min<int64_t>(tensor.numel(), i * step);
    return tensor.narrow(0, begin, std::min<int64_t>(step, tensor.numel() - begin));
  };
  std::vector<at::Tensor> slices;
  for (const at::Tensor& part : parts) slices.push_back(slice(part, getRank()));
  reduce_into(slice(mine, getRank()), slices, call.op);
  hub_->meet_again(getRank());
  for (int i = 0; i < getSize(); ++i) {
    if (i != getRank()) slice(mine, i).copy_(slice(parts[static_cast<size_t>(i)], i));
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
