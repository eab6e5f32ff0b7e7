#include "comm/hierarchical.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/call_shape.h"
#include "comm/errors.h"
#include "comm/host_talk.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

}  // namespace

HierarchicalBackend::HierarchicalBackend(int rank, HierarchicalParts parts)
    : SyncBackend(rank, static_cast<int>(parts.ranks.size())),
      parts_(std::move(parts)),
      host_(parts_.hosts.host_of[static_cast<size_t>(rank)]) {}

InsideHost HierarchicalBackend::inside() const { return InsideHost(*parts_.inside); }

c10d::Backend& HierarchicalBackend::between() const { return *parts_.between; }

int HierarchicalBackend::partner(size_t other_host, int member) const {
  const std::vector<int>& there = parts_.hosts.members[other_host];
  return there[static_cast<size_t>(place_of(member)) % there.size()];
}

// Covers every rank of the other hosts; the k-th of a wave has the k-th rank of this host as its partner.
std::vector<HierarchicalBackend::Wave> HierarchicalBackend::waves() const {
  const size_t here = parts_.hosts.beside(getRank()).size();
  std::vector<Wave> waves;
  for_each_other_host([&](size_t other) {
    const std::vector<int>& there = parts_.hosts.members[other];
    for (size_t first = 0; first < there.size(); first += here) {
      const size_t last = std::min(there.size(), first + here);
      waves.emplace_back(there.begin() + static_cast<int64_t>(first), there.begin() + static_cast<int64_t>(last));
    }
  });
  return waves;
}

HierarchicalBackend::CallScope::CallScope(HierarchicalBackend& backend, const char* operation) : backend_(backend) {
  const std::lock_guard lock(backend.mutex_);
  if (backend.closed_) {
    throw_comm_error(ErrorText(operation, "the group broke in an earlier call")
                         .fact("group", "ranks " + rank_list(backend.parts_.ranks))
                         .help("start the program again"));
  }
  ++backend.under_way_;
}

HierarchicalBackend::CallScope::~CallScope() {
  {
    const std::lock_guard lock(backend_.mutex_);
    --backend_.under_way_;
    if (!backend_.closed_) return;
  }
  backend_.let_go();
}

// Closes the connections, so that the other hosts stop waiting, unless a call is using them: its end does, then.
void HierarchicalBackend::let_go() {
  c10::intrusive_ptr<c10d::Backend> last;  // its destructor may take a while: without the lock
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (under_way_ == 0) last = std::move(parts_.between);
}

void HierarchicalBackend::abort() {
  parts_.inside->abort();
  let_go();
}

void HierarchicalBackend::shutdown() {
  parts_.inside->shutdown();
  let_go();
}

HierarchicalBackend::WorkPtr HierarchicalBackend::send(Tensors& tensors, int to, int tag) {
  const CallScope scope(*this, "send");
  if (is_beside(to)) return parts_.inside->send(tensors, place_of(to), tag);
  Tensors bytes{as_bytes(tensors.at(0).contiguous())};
  return between().send(bytes, to, tag);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::recv(Tensors& tensors, int from, int tag) {
  const CallScope scope(*this, "receive");
  if (is_beside(from)) return parts_.inside->recv(tensors, place_of(from), tag);
  Tensors bytes{as_bytes(tensors.at(0))};
  return between().recv(bytes, from, tag);
}

void HierarchicalBackend::run_send(const Tensor& tensor, int to, int tag) {
  Tensors tensors{tensor};
  send(tensors, to, tag)->wait();
}

std::function<void()> HierarchicalBackend::start_receive(const Tensor& tensor, int from, int tag) {
  Tensors tensors{tensor};
  return [work = recv(tensors, from, tag)] { work->wait(); };
}

void HierarchicalBackend::run(const Call& call) {
  check_blocks_per_rank(call, parts_.ranks);
  check_on_cpu(call);
  const CallScope scope(*this, name_of(call.kind));
  // What ranks of a host say to each other here serves the call; whether all mean the same by that is told with it.
  const PurposeScope own_calls(nullptr);
  std::vector<CallShape> calls;
  try {
    if (meet(call)) return with_contiguous(call, [&](const Call& dense) { move(dense); });
    calls = descriptions_of_all(call);
  } catch (const std::exception&) {  // the ranks are out of step, and those on other hosts must not wait for this one
    abort();
    throw;
  }
  ErrorText text(name_of(call.kind), kDifferentCalls);
  for (const auto& [who, what] : calls_by_rank(parts_.ranks, calls)) text.fact(who, what);
  throw_comm_error(text.help(kDifferentCallsHelp));
}

void HierarchicalBackend::move(const Call& call) {
  switch (call.kind) {
    case Collective::all_gather:
      return run_all_gather(call);
    case Collective::gather:
      return run_gather(call);
    case Collective::all_to_all:
      return run_all_to_all(call);
    case Collective::scatter:
      return run_scatter(call);
    case Collective::broadcast:
      return run_broadcast(call);
    case Collective::reduce_scatter:
      return run_reduce_scatter(call);
    case Collective::reduce:
      return run_reduce(call);
    case Collective::all_reduce:
      return run_all_reduce(call);
    default:
      return;  // a barrier: all have met
  }
}

// One row of equal length from each rank, in the order of the ranks. The first rank of each host talks for it.
Tensor HierarchicalBackend::rows_of_all(const Tensor& mine) {
  const Hosts& hosts = parts_.hosts;
  const std::vector<int>& here = hosts.beside(getRank());
  const Tensor rows = at::empty({getSize(), mine.numel()}, mine.options());  // host after host
  Tensors blocks;
  int64_t first = 0;
  for (const std::vector<int>& members : hosts.members) {
    const auto count = static_cast<int64_t>(members.size());
    blocks.push_back(rows.narrow(0, first, count));
    first += count;
  }
  const Tensor& own = blocks[static_cast<size_t>(host_)];
  inside().all_gather(own.unbind(0), mine);
  if (here.front() == getRank()) {
    HostMessages messages(between(), HostTag::meeting);
    for_each_other_host([&](size_t other) {
      messages.receive(blocks[other], hosts.members[other].front());
      messages.send(own, hosts.members[other].front());
    });
    messages.wait();
  }
  inside().broadcast(rows, 0);
  Tensor ordered = at::empty_like(rows);
  for (int i = 0; i < getSize(); ++i) {
    const auto host = static_cast<size_t>(hosts.host_of[static_cast<size_t>(i)]);
    ordered.select(0, i).copy_(blocks[host].select(0, place_of(i)));
  }
  return ordered;
}

// Returns when every rank has come: whether their calls fit together, the same answer on all of them.
bool HierarchicalBackend::meet(const Call& call) {
  static_assert(sizeof(CallSums) == 3 * sizeof(int64_t));
  const CallSums sums = sums_of(call, getRank(), getSize());
  const Tensor mine = at::empty({3}, at::TensorOptions(c10::ScalarType::Long));
  std::memcpy(mine.mutable_data_ptr(), &sums, sizeof sums);
  const Tensor all = rows_of_all(mine);
  std::vector<CallSums> calls(static_cast<size_t>(getSize()));
  std::memcpy(calls.data(), all.const_data_ptr(), all.nbytes());
  return fit_together(calls);
}

std::vector<CallShape> HierarchicalBackend::descriptions_of_all(const Call& call) {
  const std::string text = describe_with_purpose(call).substr(0, kTextBytes - 1);
  const Tensor mine = at::zeros({static_cast<int64_t>(kTextBytes)}, at::TensorOptions(c10::ScalarType::Byte));
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  const Tensor all = rows_of_all(mine);
  std::vector<CallShape> calls(static_cast<size_t>(getSize()));
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].description = static_cast<const char*>(all.const_data_ptr()) + i * kTextBytes;
  }
  return calls;
}

// Each rank sends its block to one rank of every other host, and the ranks there share what came.
void HierarchicalBackend::run_all_gather(const Call& call) {
  const Tensor& in = call.inputs.front();
  const auto me = static_cast<size_t>(place_of(getRank()));
  const Tensor nothing = in.new_empty({0});
  const auto outputs_of = [&](const std::vector<int>& members) {
    Tensors outputs(parts_.hosts.beside(getRank()).size(), nothing);
    for (size_t i = 0; i < members.size(); ++i) outputs[i] = call.outputs[static_cast<size_t>(members[i])];
    return outputs;
  };
  HostMessages messages(between(), HostTag::data);
  const std::vector<Wave> all = waves();
  std::vector<size_t> receives;
  for (const Wave& wave : all) {
    const bool mine = me < wave.size();
    receives.push_back(messages.receive(mine ? outputs_of(wave)[me] : nothing, mine ? wave[me] : 0));
  }
  for_each_other_host([&](size_t other) { messages.send(in, partner(other, getRank())); });
  inside().all_gather(outputs_of(parts_.hosts.beside(getRank())), in);
  for (size_t i = 0; i < all.size(); ++i) {
    messages.wait_for(receives[i]);
    const Tensors outputs = outputs_of(all[i]);
    inside().all_gather(outputs, outputs[me]);
  }
  messages.wait();
}

// Nothing could cross less often: blocks of other hosts go straight to the root.
void HierarchicalBackend::run_gather(const Call& call) {
  HostMessages messages(between(), HostTag::data);
  if (!is_beside(call.root)) {
    messages.send(call.inputs.front(), call.root);
    return messages.wait();
  }
  Tensors beside;
  if (call.root == getRank()) {
    for (int i = 0; i < getSize(); ++i) {
      const Tensor& output = call.outputs[static_cast<size_t>(i)];
      if (is_beside(i)) {
        beside.push_back(output);
      } else {
        messages.receive(output, i);
      }
    }
  }
  inside().gather(beside, call.inputs.front(), place_of(call.root));
  messages.wait();
}

void HierarchicalBackend::run_scatter(const Call& call) {
  HostMessages messages(between(), HostTag::data);
  const Tensor& out = call.outputs.front();
  if (!is_beside(call.root)) {
    messages.receive(out, call.root);
    return messages.wait();
  }
  Tensors beside;
  if (call.root == getRank()) {
    for (int i = 0; i < getSize(); ++i) {
      const Tensor& input = call.inputs[static_cast<size_t>(i)];
      if (is_beside(i)) {
        beside.push_back(input);
      } else {
        messages.send(input, i);
      }
    }
  }
  inside().scatter(out, beside, place_of(call.root));
  messages.wait();
}

void HierarchicalBackend::run_all_to_all(const Call& call) {
  HostMessages messages(between(), HostTag::data);
  Tensors outputs;
  Tensors inputs;
  for (const int i : parts_.hosts.beside(getRank())) {
    outputs.push_back(call.outputs[static_cast<size_t>(i)]);
    inputs.push_back(call.inputs[static_cast<size_t>(i)]);
  }
  for_each_other_host([&](size_t other) {
    for (const int i : parts_.hosts.members[other]) {
      messages.receive(call.outputs[static_cast<size_t>(i)], i);
      messages.send(call.inputs[static_cast<size_t>(i)], i);
    }
  });
  inside().all_to_all(outputs, inputs);
  messages.wait();
}

// A tree over the hosts, with the root's host on top: host v has the hosts v + 1, v + 2, v + 4, ... below it, as far as
// its own lowest set bit.
void HierarchicalBackend::run_broadcast(const Call& call) {
  const Tensor& tensor = call.outputs.front();
  const size_t n = parts_.hosts.size();
  const auto top = static_cast<size_t>(parts_.hosts.host_of[static_cast<size_t>(call.root)]);
  const size_t v = (static_cast<size_t>(host_) + n - top) % n;
  // Who talks for a host.
  const auto speaker = [&](size_t number) {
    return number == 0 ? call.root : parts_.hosts.members[(number + top) % n].front();
  };
  const size_t low = v & (~v + 1);  // 0 for the top
  HostMessages messages(between(), HostTag::data);
  if (speaker(v) == getRank()) {
    if (v != 0) messages.receive(tensor, speaker(v - low));
    messages.wait_for_receives();
    size_t step = 1;
    while (step * 2 < n) step *= 2;
    for (; step > 0; step /= 2) {
      if ((v == 0 || step < low) && v + step < n) messages.send(tensor, speaker(v + step));
    }
  }
  inside().broadcast(tensor, place_of(speaker(v)));
  messages.wait();
}

}  // namespace sherd::detail
