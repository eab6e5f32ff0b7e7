#include "checkpoint/placing.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "sharded/moves.h"
#include "sherd/checkpointable.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/sharded_tensor.h"
#include "tensor/boxes_meta.h"
#include "tensor/held_boxes.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using sharded::is_sharded_tensor;

// Every kind of tensor says which boxes it has here: a whole value is cut for all of them alike.
void cut_into_parts(const Tensor& target, const Tensor& whole) {
  const auto parts = checkpointable(target);
  for (const ChunkMetadata& chunk : parts->chunk_list()) {
    parts->shard({"", chunk.offsets, {}}).copy_(part_of(whole, chunk.box()));
  }
}

bool is_same_memory(const Tensor& a, const Tensor& b) {
  return !is_in_parts(a) && !is_in_parts(b) && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

void place_here(const Tensor& target, const Tensor& value) {
  if (is_same_memory(target, value)) return;
  if (!is_in_parts(value)) return cut_into_parts(target, value);
  if (is_dtensor(target) == is_dtensor(value) && is_sharded_tensor(target) == is_sharded_tensor(value) &&
      is_in_parts(target)) {
    target.copy_(value);
    return;
  }
  const Tensor whole = whole_of(value);
  if (whole.defined()) cut_into_parts(target, whole);
}

std::vector<int64_t> ranks_of(const Tensor& tensor) {
  if (is_dtensor(tensor)) return mesh_of(tensor).mesh().ranks();
  return is_sharded_tensor(tensor) ? sharded::ShardedTensor(tensor).ranks() : std::vector<int64_t>();
}

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
  const sharded::ShardedTensor pieces(tensor);
  if (!pieces.group()) return {};
  const auto& ranks = pieces.ranks();
  const Tensor out =
      is_here ? at::empty(tensor.sizes(), tensor.options().device(pieces.device_of_group()).requires_grad(std::nullopt))
              : Tensor();
  pieces.gather(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin(),
                is_here ? std::optional(out) : std::nullopt);
  return out;
}

// Moves a plain tensor from one rank of the world to another; the others do nothing. `like` says its size, dtype and
// device.
Tensor moved(const Tensor& tensor, const Tensor& like, int64_t from, int64_t to, const World& world) {
  if (from == to || (world.rank() != from && world.rank() != to)) return tensor;
  const Group group = world.group();
  if (world.rank() == from) {
    send(group, tensor.contiguous(), static_cast<int>(to)).wait();
    return {};
  }
  Tensor received = at::empty(like.sizes(), like.options());
  receive(group, received, static_cast<int>(from)).wait();
  return received;
}

// Size, dtype and device of a tensor, without its memory.
Tensor placeholder(const Tensor& target, c10::Device device) {
  return at::empty({}, target.options().device(device).requires_grad(std::nullopt)).expand(target.sizes());
}

// `whole` is a plain tensor of the target's dtype on rank 0, and undefined elsewhere.
void place_from_rank0(const Tensor& target, const Tensor& whole) {
  const World world = current_world();
  const bool is_cut = is_dtensor(target) && boxes_of(to_local(target)) == nullptr;
  if (!is_cut && !is_sharded_tensor(target)) {
    const Tensor all = whole.defined() ? whole.to(target.device()).contiguous()
                                       : at::empty(target.sizes(), target.options().requires_grad(std::nullopt));
    broadcast(world.group(), all, 0).wait();
    return cut_into_parts(target, all);
  }
  const std::vector<int64_t> ranks = ranks_of(target);
  const bool takes_part = std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end();
  const c10::Device device = is_cut ? mesh_of(target).device() : sharded::ShardedTensor(target).device_of_group();
  Tensor source =
      moved(whole.defined() ? whole.to(device) : whole, placeholder(target, device), 0, ranks.front(), world);
  if (!takes_part) return;
  // Only the source's data count: the others need no memory of that size, where that is not asked for.
  if (!source.defined()) source = placeholder(target, device);
  if (is_cut) {
    to_local(target).copy_(to_local(distribute_tensor(source, mesh_of(target), placements_of(target))));
  } else {
    const sharded::ShardedTensor pieces(target);
    target.copy_(sharded::shard_tensor(source.contiguous(), pieces.sharding_spec(), 0, {.group = pieces.group()}));
  }
}

}  // namespace

bool is_in_parts(const Tensor& tensor) { return is_dtensor(tensor) || boxes_of(tensor) != nullptr; }

Tensor whole_of(const Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  if (is_dtensor(tensor)) {
    const Tensor whole = full_tensor(tensor.detach());
    return mesh_of(tensor).coordinate() ? whole : Tensor();
  }
  if (!is_sharded_tensor(tensor)) return tensor.detach();
  const Tensor whole = whole_everywhere(tensor.detach());
  return sharded::ShardedTensor(tensor).group() ? whole : Tensor();
}

Tensor whole_on_rank0(const Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const auto world = find_world();
  const bool is_first = !world || world->rank() == 0;
  const std::vector<int64_t> ranks = ranks_of(tensor);
  if (ranks.empty()) return is_first ? tensor.detach().cpu() : Tensor();
  const bool has_first = std::find(ranks.begin(), ranks.end(), 0) != ranks.end();
  const int64_t holder = has_first ? 0 : ranks.front();
  const Tensor whole = whole_on(tensor.detach(), holder, *world);
  const Tensor arrived =
      moved(whole.defined() ? whole.cpu() : whole, placeholder(tensor, c10::kCPU), holder, 0, *world);
  return is_first ? arrived : Tensor();
}

Tensor on_cpu(const Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  if (tensor.device().is_cpu() || !is_in_parts(tensor)) return tensor.detach().cpu();
  if (is_dtensor(tensor)) {
    const DeviceMesh mesh("cpu", mesh_of(tensor).mesh());
    FromLocalOptions options;
    options.shape = tensor.sizes().vec();
    options.stride = tensor.strides().vec();
    return from_local(to_local(tensor.detach()).cpu(), mesh, placements_of(tensor), options);
  }
  sharded::ShardedTensorMetadata metadata = sharded::ShardedTensor(tensor).metadata();
  std::vector<sharded::Shard> shards = sharded::ShardedTensor(tensor).local_shards();
  const auto move_placement = [](sharded::ShardMetadata& shard) {
    if (shard.placement) shard.placement->device = c10::Device(c10::kCPU);
  };
  for (sharded::ShardMetadata& shard : metadata.shards_metadata) move_placement(shard);
  std::vector<sharded::Shard> moved_shards;
  for (const sharded::Shard& shard : shards) {
    sharded::ShardMetadata where = shard.metadata;
    move_placement(where);
    moved_shards.emplace_back(shard.tensor.cpu(), where);
  }
  return sharded::ShardedTensor::init_from_local_shards_and_global_metadata(
      std::move(moved_shards), metadata, {.group = sharded::ShardedTensor(tensor).group()});
}

void give_memory(const Tensor& tensor, c10::Device device) {
  if (!tensor.is_meta() || is_in_parts(tensor)) return;
  // set_data() does not cross devices from meta; what it would do is right.
  const Tensor real = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
  tensor.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
}

void place(const Tensor& target, const Tensor& value, Source source) {
  const c10::NoGradGuard no_grad;
  const Tensor there = target.detach();
  if (source == Source::here) return place_here(there, value);
  place_from_rank0(there, value.is_meta() ? Tensor() : value.detach().to(there.scalar_type()));
}

}  // namespace sherd::detail
