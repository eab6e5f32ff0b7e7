// The reductions of ranks on several hosts.

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "comm/hierarchical.h"
#include "comm/host_talk.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// Up to this many bytes an all_reduce sends the whole tensor to every host: one step fewer beats fewer bytes.
constexpr size_t kSmall = size_t{32} * 1024;

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
    Tensor result = me < members.size() ? at::empty_like(inputs[me]) : nothing;
    inside().reduce_scatter(result, inputs, op);
    return result;
  };
  HostMessages messages(between(), HostTag::data);
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
  if (call.outputs.front().nbytes() <= kSmall) return run_all_reduce_small(call);
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
    HostMessages messages(between(), HostTag::data);
    for_each_other_host([&](size_t other) {
      parts[other] = at::empty_like(own);
      messages.receive(parts[other], hosts.members[other][me]);
      messages.send(chunk(slices[me], other), hosts.members[other][me]);
    });
    messages.wait();
    if (own.numel() > 0) reduce_into(own, parts, op);
    if (call.op == ReduceOp::avg) own.div_(getSize());
    copy_elements(chunk(results[me], here), own);
    HostMessages done(between(), HostTag::result);
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
    HostMessages messages(between(), HostTag::data);
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
  HostMessages messages(between(), HostTag::data);
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
