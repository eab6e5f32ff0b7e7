#include "checkpoint/sharing.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <set>

#include "checkpoint/placing.h"
#include "checkpoint/tensor_bytes.h"
#include "sharded/bytes.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/sharded_tensor.h"
#include "tensor/boxes_meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using sharded::ShardedTensor;

using Ranks = std::vector<int64_t>;

// A rank's tensor as it tells the others.
struct Held {
  c10::DeviceType device = c10::kCPU;
  bool in_simple_parts = false;  // cut by placements or a spec, one level deep
  Ranks ranks = {};
};
using HeldByName = std::map<std::string, Held>;

bool is_simple(const Tensor& tensor) {
  if (is_dtensor(tensor)) return boxes_of(to_local(tensor)) == nullptr;
  const BoxesMeta* boxes = boxes_of(tensor);
  return sharded::is_sharded_tensor(tensor) && std::all_of(boxes->pieces.begin(), boxes->pieces.end(),
                                                           [](const Tensor& piece) { return !is_in_parts(piece); });
}

c10::Device device_here(const Tensor& tensor) {
  if (is_dtensor(tensor)) return mesh_of(tensor).device();
  return sharded::is_sharded_tensor(tensor) ? ShardedTensor(tensor).device_of_group() : tensor.device();
}

std::string to_bytes(const std::vector<SharedTensor>& tensors) {
  ByteWriter out;
  for (const auto& [name, tensor] : tensors) {
    out.put_text(name);
    out.put(device_here(tensor).type());
    out.put(is_simple(tensor));
    out.put_dims(ranks_of(tensor));
  }
  return out.take();
}

struct Told {
  std::vector<std::string> names;  // in the order of ranks, each once
  std::vector<HeldByName> ranks;
};

Told tell_holders(const World& world, const std::vector<SharedTensor>& tensors) {
  Told told;
  std::set<std::string> seen;
  for (const std::string& bytes : all_gather_text(world.group(), to_bytes(tensors))) {
    ByteReader in("share_out", bytes);
    HeldByName& held = told.ranks.emplace_back();
    while (in.left() > 0) {
      const std::string name = in.get_text();
      Held& item = held[name];
      item.device = in.get<c10::DeviceType>();
      item.in_simple_parts = in.get<bool>();
      item.ranks = in.get_dims();
      if (seen.insert(name).second) told.names.push_back(name);
    }
  }
  return told;
}

bool holds(const Ranks& ranks, int64_t rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

// Size, dtype and device of a tensor, without its memory.
Tensor placeholder(const Tensor& like, c10::Device device) {
  return at::empty({}, at::TensorOptions(like.scalar_type()).device(device)).expand(like.sizes());
}

Tensor memory_like(const Tensor& like, c10::Device device) {
  return at::empty(like.sizes(), at::TensorOptions(like.scalar_type()).device(device));
}

// Of one name: what the ranks want, rank 0's value, and this rank's tensor, if it has one.
class Sharing {
 public:
  Sharing(const World& world, const Tensor& value, const Tensor* target)
      : world_(world), group_(world.group()), value_(value), target_(target) {}

  // Tensors that nobody can cut from outside: everyone gets all, and cuts.
  void give_all(c10::DeviceType type) const {
    const c10::Device device = target_ != nullptr ? device_here(*target_) : c10::Device(type);
    const Tensor all = world_.rank() == 0 ? elements_of(value_.to(device)) : memory_like(value_, device);
    broadcast(group_, all, 0).wait();
    if (target_ != nullptr) place(*target_, all);
  }

  // The first of those that hold a tensor together gets all of it, and cuts it for the others.
  void give_first(const std::map<Ranks, c10::DeviceType>& holders) const {
    Tensor source;
    for (const auto& [ranks, type] : holders) {
      const int64_t first = ranks.front();
      if (first == 0) {
        if (world_.rank() == 0) source = value_;
      } else if (world_.rank() == 0) {
        send(group_, elements_of(value_.to(c10::Device(type))), static_cast<int>(first)).wait();
      } else if (world_.rank() == first) {
        source = memory_like(value_, device_here(*target_));
        receive(group_, source, 0).wait();
      }
    }
    if (target_ == nullptr || !holds(ranks_of(*target_), world_.rank())) return;
    const c10::Device device = device_here(*target_);
    const bool is_first = ranks_of(*target_).front() == world_.rank();
    // Data of the others do not count, so they need no memory of that size.
    cut(is_first ? elements_of(source.to(device)) : placeholder(value_, device));
  }

 private:
  void cut(const Tensor& source) const {
    if (is_dtensor(*target_)) {
      place(*target_, distribute_tensor(source, mesh_of(*target_), placements_of(*target_)));
    } else {
      const ShardedTensor pieces(*target_);
      place(*target_, sharded::shard_tensor(source.contiguous(), pieces.sharding_spec(), 0, {.group = pieces.group()}));
    }
  }

  const World& world_;
  Group group_;
  const Tensor& value_;
  const Tensor* target_;
};

// On one rank of those that hold the tensor.
Tensor whole_on(const Tensor& tensor, int64_t rank, const World& world) {
  const bool is_here = world.rank() == rank;
  if (is_dtensor(tensor)) {
    if (!mesh_of(tensor).coordinate()) return {};
    const Dims size = tensor.sizes().vec();
    const std::vector<Tensor> boxes =
        read_boxes(tensor, is_here ? std::vector<Box>{{Dims(size.size(), 0), size}} : std::vector<Box>());
    return is_here ? boxes.front() : Tensor();
  }
  const ShardedTensor pieces(tensor);
  if (!pieces.group()) return {};
  const auto& ranks = pieces.ranks();
  const Tensor out = is_here ? memory_like(tensor, pieces.device_of_group()) : Tensor();
  pieces.gather(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin(),
                is_here ? std::optional(out) : std::nullopt);
  return out;
}

// Whether a tensor is simple on all ranks that have it.
bool is_simple_everywhere(const Told& told, const std::string& name) {
  return std::all_of(told.ranks.begin(), told.ranks.end(), [&](const HeldByName& rank) {
    const auto held = rank.find(name);
    return held == rank.end() || held->second.in_simple_parts;
  });
}

// Rank 0's tensor, which `ranks` hold, on rank 0. Who holds a tensor otherwise has another one and stays out of it,
// except that pieces in pieces are put together by ranks that rank 0's tensor does not name.
Tensor collected(const World& world, const Tensor& tensor, const Ranks& ranks, bool simple) {
  const bool has_same = ranks_of(tensor) == ranks;
  if (simple && !has_same) return {};
  const int64_t holder = holds(ranks, 0) ? 0 : ranks.front();
  const Tensor whole = simple ? whole_on(tensor.detach(), holder, world) : whole_of(tensor);
  if (holder == 0) return world.rank() == 0 ? whole.cpu() : Tensor();
  if (world.rank() == holder) send(world.group(), elements_of(whole.cpu()), 0).wait();
  if (world.rank() != 0) return {};
  Tensor arrived = memory_like(tensor, c10::kCPU);
  receive(world.group(), arrived, static_cast<int>(holder)).wait();
  return arrived;
}

}  // namespace

void share_out(const std::vector<SharedTensor>& tensors, const std::map<std::string, Tensor>& values) {
  const c10::NoGradGuard no_grad;
  const World world = current_world();
  const Told told = tell_holders(world, tensors);
  std::map<std::string, Tensor> targets;
  for (const auto& [name, tensor] : tensors) targets[name] = tensor.detach();
  for (const std::string& name : told.names) {
    std::map<Ranks, c10::DeviceType> holders;
    std::optional<c10::DeviceType> device;
    for (const HeldByName& rank : told.ranks) {
      const auto held = rank.find(name);
      if (held == rank.end()) continue;
      if (!device) device = held->second.device;
      holders.emplace(held->second.ranks, held->second.device);
    }
    const auto target = targets.find(name);
    const Sharing sharing(world, values.at(name), target != targets.end() ? &target->second : nullptr);
    if (is_simple_everywhere(told, name)) {
      sharing.give_first(holders);
    } else {
      sharing.give_all(*device);
    }
  }
}

std::map<std::string, Tensor> collect(const std::vector<SharedTensor>& tensors) {
  const c10::NoGradGuard no_grad;
  const auto world = find_world();
  std::map<std::string, Tensor> mine;
  for (const auto& [name, tensor] : tensors) mine[name] = tensor;
  std::map<std::string, Tensor> whole;
  if (!world || world->size() == 1) {
    for (const auto& [name, tensor] : mine) whole[name] = whole_of(tensor).cpu();
    return whole;
  }
  const Told told = tell_holders(*world, tensors);
  for (const std::string& name : told.names) {
    const auto first = told.ranks.front().find(name);
    if (first == told.ranks.front().end()) continue;
    const Ranks& ranks = first->second.ranks;
    const auto here = mine.find(name);
    if (here == mine.end() || (ranks.empty() && world->rank() != 0)) continue;
    const Tensor result = ranks.empty() ? here->second.detach().cpu()
                                        : collected(*world, here->second, ranks, is_simple_everywhere(told, name));
    if (world->rank() == 0) whole[name] = result;
  }
  return whole;
}

}  // namespace sherd::detail
