#include "checkpoint/placing.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include "sharded/moves.h"
#include "sherd/checkpointable.h"
#include "sherd/dtensor.h"
#include "sherd/sharded_tensor.h"
#include "tensor/boxes_meta.h"
#include "tensor/meta.h"

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
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

}  // namespace

bool is_in_parts(const Tensor& tensor) { return is_dtensor(tensor) || boxes_of(tensor) != nullptr; }

std::vector<int64_t> ranks_of(const Tensor& tensor) {
  if (is_dtensor(tensor)) return mesh_of(tensor).mesh().ranks();
  return is_sharded_tensor(tensor) ? sharded::ShardedTensor(tensor).ranks() : std::vector<int64_t>();
}

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
  take_memory(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device)));
}

bool has_no_memory(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr ? meta->local.is_meta() : tensor.is_meta();
}

Tensor with_memory(const Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr) {
    if (is_in_parts(tensor)) return {};
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
  }
  const Spec& spec = *meta->spec;
  if (spec.boxes) return {};
  const Tensor& local = current_local(*meta);
  const DeviceMesh mesh("cpu", spec.mesh.mesh());
  return wrap(intern_spec(mesh, spec.placements, spec.sizes, spec.strides),
              at::empty_strided(local.sizes(), local.strides(), local.options().device(c10::kCPU)));
}

void take_memory(const Tensor& tensor, const Tensor& with_memory) {
  // set_data() does not cross devices from meta; what it would do is right.
  tensor.unsafeGetTensorImpl()->shallow_copy_from(with_memory.getIntrusivePtr());
}

void place(const Tensor& target, const Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Tensor there = target.detach();
  if (is_same_memory(there, value)) return;
  if (!is_in_parts(value)) return cut_into_parts(there, value);
  if (is_in_parts(there) && is_dtensor(there) == is_dtensor(value) &&
      is_sharded_tensor(there) == is_sharded_tensor(value)) {
    there.copy_(value);
    return;
  }
  const Tensor whole = whole_of(value);
  if (whole.defined()) cut_into_parts(there, whole);
}

}  // namespace sherd::detail
