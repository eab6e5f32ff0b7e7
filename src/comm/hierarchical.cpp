#include "comm/hierarchical.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/arguments.h"
#include "comm/call_shape.h"
#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Up to this many bytes an all_reduce sends the whole tensor to every host: one step fewer beats fewer bytes.
constexpr size_t kSmall = size_t{32} * 1024;
constexpr size_t kTextBytes = 160;  // of a call's description; longer ones are cut

// Our messages, told apart from the user's by their tags.
enum Tag : int {
  tag_meeting = kMaxTag + 1,
  tag_data,
  tag_result,
};

Tensor as_bytes(const Tensor& tensor) { return tensor.view({-1}).view(c10::ScalarType::Byte); }

// Part i of n, as even as can be.
Tensor part_of(const Tensor& flat, size_t i, size_t n) {
  const int64_t step = (flat.numel() + static_cast<int64_t>(n) - 1) / static_cast<int64_t>(n);
  const int64_t begin = std::min(flat.numel(), static_cast<int64_t>(i) * step);
  return flat.narrow(0, begin, std::min(step, flat.numel() - begin));
}

ReduceOp without_average(ReduceOp op) { return op == ReduceOp::avg ? ReduceOp::sum : op; }

// What is combined on the way: a sixteen-bit float as one of 32 bits.
Tensor widened(const Tensor& tensor, ReduceOp op) {
  return reduced_in_32_bits(tensor.scalar_type(), op) ? tensor.to(c10::ScalarType::Float) : tensor;
}

}  // namespace

// Collectives of the ranks on this host.
class HierarchicalBackend::Inside {
 public:
  explicit Inside(c10d::Backend& backend) : backend_(backend) {}

  void all_gather(const Tensors& outputs, const Tensor& input) {
    std::vector<Tensors> lists{outputs};
    Tensors inputs{input};
    backend_.allgather(lists, inputs, {})->wait();
  }
  void gather(const Tensors& outputs, const Tensor& input, int root) {
    std::vector<Tensors> lists{outputs};
    Tensors inputs{input};
    c10d::GatherOptions options;
    options.rootRank = root;
    backend_.gather(lists, inputs, options)->wait();
  }
  void scatter(const Tensor& output, const Tensors& inputs, int root) {
    std::vector<Tensors> lists{inputs};
    Tensors outputs{output};
    c10d::ScatterOptions options;
    options.rootRank = root;
    backend_.scatter(outputs, lists, options)->wait();
  }
  void all_to_all(Tensors outputs, Tensors inputs) { backend_.alltoall(outputs, inputs, {})->wait(); }
  void broadcast(const Tensor& tensor, int root) {
    Tensors tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    backend_.broadcast(tensors, options)->wait();
  }
  void reduce(const Tensor& tensor, ReduceOp op, int root) {
    Tensors tensors{tensor};
    c10d::ReduceOptions options;
    options.reduceOp = to_c10d(op);
    options.rootRank = root;
    backend_.reduce(tensors, options)->wait();
  }
  void reduce_scatter(const Tensor& output, const Tensors& inputs, ReduceOp op) {
    Tensors outputs{output};
    std::vector<Tensors> lists{inputs};
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    backend_.reduce_scatter(outputs, lists, options)->wait();
  }

 private:
  c10d::Backend& backend_;
};

// Messages to and from other hosts, under way until they are waited for. Both sides leave out those without elements.
class HierarchicalBackend::Messages {
 public:
  Messages(c10d::Backend& backend, int tag) : backend_(backend), tag_(tag) {}

  void send(const Tensor& tensor, int to) {
    if (tensor.numel() == 0) return;
    Tensors bytes{as_bytes(tensor)};
    sends_.push_back(backend_.send(bytes, to, tag_));
  }
  /// Returns the number of it, for wait_for().
  size_t receive(const Tensor& tensor, int from) {
    Tensors bytes{tensor.numel() == 0 ? tensor : as_bytes(tensor)};
    receives_.push_back(tensor.numel() == 0 ? nullptr : backend_.recv(bytes, from, tag_));
    return receives_.size() - 1;
  }
  void wait_for(size_t receive) {
    if (const WorkPtr work = std::exchange(receives_[receive], nullptr)) work->wait();
  }
  void wait_for_receives() {
    for (size_t i = 0; i < receives_.size(); ++i) wait_for(i);
  }
  void wait() {
    wait_for_receives();
    for (const WorkPtr& work : sends_) work->wait();
    sends_.clear();
  }

 private:
  c10d::Backend& backend_;
  int tag_;
  std::vector<WorkPtr> sends_;
  std::vector<WorkPtr> receives_;
};

HierarchicalBackend::HierarchicalBackend(int rank, HierarchicalParts parts)
    : SyncBackend(rank, static_cast<int>(parts.ranks.size())),
      parts_(std::move(parts)),
      host_(parts_.hosts.host_of[static_cast<size_t>(rank)]) {}

HierarchicalBackend::Inside HierarchicalBackend::inside() const { return Inside(*parts_.inside); }

c10d::Backend& HierarchicalBackend::between() const { return *parts_.between; }

template <class F>
void HierarchicalBackend::for_each_other_host(F&& f) const {
  const size_t hosts = parts_.hosts.size();
  // Hosts begin with different ones, so that they do not all talk to one host at once.
  for (size_t i = 1; i < hosts; ++i) f((static_cast<size_t>(host_) + i) % hosts);
}

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

void HierarchicalBackend::abort() {
  closed_ = true;
  parts_.inside->abort();
  parts_.between.reset();  // closes the connections: the other hosts stop waiting
}

void HierarchicalBackend::shutdown() {
  closed_ = true;
  parts_.inside->shutdown();
  parts_.between.reset();
}

HierarchicalBackend::WorkPtr HierarchicalBackend::send(Tensors& tensors, int to, int tag) {
  check_open("send");
  if (is_beside(to)) return parts_.inside->send(tensors, place_of(to), tag);
  Tensors bytes{as_bytes(tensors.at(0).contiguous())};
  return between().send(bytes, to, tag);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::recv(Tensors& tensors, int from, int tag) {
  check_open("receive");
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

void HierarchicalBackend::check_open(const char* operation) const {
  if (!closed_) return;
  throw_comm_error(ErrorText(operation, "the group broke in an earlier call")
                       .fact("group", "ranks " + rank_list(parts_.ranks))
                       .help("start the program again"));
}

void HierarchicalBackend::run(const Call& call) {
  check_blocks_per_rank(call, parts_.ranks);
  check_on_cpu(call);
  check_open(name_of(call.kind));
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
      return call.outputs.front().nbytes() <= kSmall ? run_all_reduce_small(call) : run_all_reduce(call);
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
    Messages messages(between(), tag_meeting);
    for_each_other_host([&](size_t other) {
      messages.receive(blocks[other], hosts.members[other].front());
      messages.send(own, hosts.members[other].front());
    });
    messages.wait();
  }
  inside().broadcast(rows, 0);
  const Tensor ordered = at::empty_like(rows);
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
  const std::string text = describe(call).substr(0, kTextBytes - 1);
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
  Messages messages(between(), tag_data);
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
  Messages messages(between(), tag_data);
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
  Messages messages(between(), tag_data);
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
  Messages messages(between(), tag_data);
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
  Messages messages(between(), tag_data);
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

// What a rank takes is combined on every host by its partner there, and crosses once from each.
void HierarchicalBackend::run_reduce_scatter(const Call& call) {
  const Tensor& out = call.outputs.front();
  const ReduceOp op = without_average(call.op);
  const auto me = static_cast<size_t>(place_of(getRank()));
  const std::vector<int>& here = parts_.hosts.beside(getRank());
  // This host's part of what `members` take; what came of it for the rank that is this one's task.
  const auto combine = [&](const std::vector<int>& members) {
    const Tensor nothing = widened(out.new_empty({0}), call.op);
    Tensors inputs(here.size(), nothing);
    for (size_t i = 0; i < members.size(); ++i) {
      inputs[i] = widened(call.inputs[static_cast<size_t>(members[i])].view({-1}), call.op);
    }
    const Tensor result = me < members.size() ? at::empty_like(inputs[me]) : nothing;
    inside().reduce_scatter(result, inputs, op);
    return result;
  };
  Messages messages(between(), tag_data);
  Tensors parts(parts_.hosts.size());
  const Tensor like = widened(out.view({-1}), call.op);
  for_each_other_host([&](size_t other) {
    parts[other] = at::empty_like(like);
    messages.receive(parts[other], partner(other, getRank()));
  });
  for (const Wave& wave : waves()) {
    const Tensor part = combine(wave);
    if (me < wave.size()) messages.send(part, wave[me]);
  }
  const Tensor own = parts[static_cast<size_t>(host_)] = combine(here);
  messages.wait();
  reduce_into(own, parts, op);
  if (call.op == ReduceOp::avg) own.div_(getSize());
  out.view({-1}).copy_(own);
}

// Lane k is the k-th rank of every host; there are as many as the smallest host has ranks. A host combines the slice of
// each lane; the ranks of a lane then share the slice out, combine their chunks and give them to each other.
void HierarchicalBackend::run_all_reduce(const Call& call) {
  const Hosts& hosts = parts_.hosts;
  const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const size_t lanes = std::min_element(hosts.members.begin(), hosts.members.end(), fewer)->size();
  const ReduceOp op = without_average(call.op);
  const Tensor tensor = call.outputs.front().view({-1});
  const Tensor wide = widened(tensor, call.op);  // the tensor itself where it is wide enough
  const auto me = static_cast<size_t>(place_of(getRank()));
  const auto slices_of = [&](const Tensor& whole) {
    Tensors slices;
    for (size_t i = 0; i < hosts.beside(getRank()).size(); ++i) {
      slices.push_back(i < lanes ? part_of(whole, i, lanes) : whole.narrow(0, 0, 0));
    }
    return slices;
  };
  const Tensors slices = slices_of(wide);
  inside().reduce_scatter(slices[me], slices, op);
  const Tensors results = slices_of(tensor);
  if (me < lanes) {
    const auto chunk = [&](const Tensor& slice, size_t host) { return part_of(slice, host, hosts.size()); };
    const auto here = static_cast<size_t>(host_);
    const Tensor own = chunk(slices[me], here);
    Tensors parts(hosts.size());
    parts[here] = own;
    Messages messages(between(), tag_data);
    for_each_other_host([&](size_t other) {
      parts[other] = at::empty_like(own);
      messages.receive(parts[other], hosts.members[other][me]);
      messages.send(chunk(slices[me], other), hosts.members[other][me]);
    });
    messages.wait();
    if (own.numel() > 0) reduce_into(own, parts, op);
    if (call.op == ReduceOp::avg) own.div_(getSize());
    copy_elements(chunk(results[me], here), own);
    Messages done(between(), tag_result);
    for_each_other_host([&](size_t other) {
      done.receive(chunk(results[me], other), hosts.members[other][me]);
      done.send(chunk(results[me], here), hosts.members[other][me]);
    });
    done.wait();
  }
  inside().all_gather(results, results[me]);
}

// Combines on this host, at its first rank, and sends that to the first ranks of the others, all of which combine the
// same in the same order.
void HierarchicalBackend::run_all_reduce_small(const Call& call) {
  const Hosts& hosts = parts_.hosts;
  const ReduceOp op = without_average(call.op);
  const Tensor tensor = call.outputs.front().view({-1});
  const Tensor wide = widened(tensor, call.op);
  inside().reduce(wide, op, 0);
  if (place_of(getRank()) == 0 && wide.numel() > 0) {
    Tensors parts(hosts.size());
    parts[static_cast<size_t>(host_)] = wide;
    Messages messages(between(), tag_data);
    for_each_other_host([&](size_t other) {
      parts[other] = at::empty_like(wide);
      messages.receive(parts[other], hosts.members[other].front());
      messages.send(wide, hosts.members[other].front());
    });
    messages.wait();
    reduce_into(wide, parts, op);
    if (call.op == ReduceOp::avg) wide.div_(getSize());
    copy_elements(tensor, wide);
  }
  inside().broadcast(tensor, 0);
}

// At the root alone; the tensors of the other ranks stay as they are.
void HierarchicalBackend::run_reduce(const Call& call) {
  const Hosts& hosts = parts_.hosts;
  const ReduceOp op = without_average(call.op);
  const Tensor tensor = call.outputs.front().view({-1});
  const int speaker = is_beside(call.root) ? call.root : hosts.beside(getRank()).front();
  const Tensor own = speaker == getRank() ? widened(tensor, call.op).clone() : widened(tensor, call.op);
  inside().reduce(own, op, place_of(speaker));
  if (speaker != getRank()) return;
  Messages messages(between(), tag_data);
  if (call.root != getRank()) {
    messages.send(own, call.root);
    return messages.wait();
  }
  Tensors parts(hosts.size());
  parts[static_cast<size_t>(host_)] = own;
  for_each_other_host([&](size_t other) {
    parts[other] = at::empty_like(own);
    messages.receive(parts[other], hosts.members[other].front());
  });
  messages.wait();
  if (own.numel() > 0) reduce_into(own, parts, op);
  if (call.op == ReduceOp::avg) own.div_(getSize());
  tensor.copy_(own);
}

}  // namespace sherd::detail
