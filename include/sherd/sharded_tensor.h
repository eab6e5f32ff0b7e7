#pragma once
// ShardedTensor: a tensor that lies in rectangles on the ranks of a group, any rectangles, several or none per rank.
// It is an ordinary at::Tensor whose sizes are the global ones: pointwise operators, reductions, autograd and
// optimizers work on it. docs/sharded.md shows it and says what differs from PyTorch's.
//
// Calls that communicate are made by every rank of the group, in the same order; what is wrong on one rank is an error
// on all of them before data moves. Construction from a spec, or from shards and the metadata of all, does not
// communicate and checks this rank alone.

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/group.h"
#include "sherd/placement.h"
#include "sherd/rpc.h"
#include "sherd/sharding_spec.h"
#include "sherd/world.h"

namespace sherd::sharded {

/// A rectangle of a tensor with its data. The data may be a ShardedTensor itself.
struct Shard {
  at::Tensor tensor;
  ShardMetadata metadata;

  /// Throws c10::ValueError where the tensor has another size than the metadata, or lies on another device than the
  /// placement.
  Shard(at::Tensor data, ShardMetadata where);
  static Shard from_tensor_and_offsets(const at::Tensor& tensor, const Dims& offsets, int64_t rank);
};

/// The ranks that hold a tensor together. Default: those of a GroupScope, or the whole world.
struct GroupOptions {
  /// The world's ranks. A rank that is not among them holds nothing and takes no part.
  std::optional<std::vector<int64_t>> ranks = {};
  /// A group that the program has; every member calls.
  std::optional<Group> group = {};
  /// Registers every rank's shards with the others, over RPC: see remote_shards().
  bool init_rrefs = false;
};

struct ShardedTensorOptions : GroupOptions {
  std::optional<c10::ScalarType> dtype = {};  // torch's default dtype of now
  c10::Layout layout = c10::kStrided;
  bool requires_grad = false;
  bool pin_memory = false;
  c10::MemoryFormat memory_format = c10::MemoryFormat::Contiguous;
};

bool is_sharded_tensor(const at::Tensor& tensor);

/// A sharded tensor as a value of this process: metadata of all shards, data of some. A ShardedTensor without a group.
class ShardedTensorBase : public at::Tensor {
 public:
  /// Throws c10::ValueError where the tensor is no sharded one.
  explicit ShardedTensorBase(const at::Tensor& tensor);

  /// Does not communicate. The shards must be among the metadata, in any order, and the metadata must tile the tensor.
  static ShardedTensorBase init_from_local_shards_and_global_metadata(std::vector<Shard> shards,
                                                                      const ShardedTensorMetadata& metadata,
                                                                      const std::optional<ShardingSpec>& spec = {});

  ShardedTensorMetadata metadata() const;
  std::vector<Shard> local_shards() const;
  const ShardingSpec& sharding_spec() const;
  bool is_pinned() const;
};

struct GatherOptions {
  /// The dtype in which values travel, where it is not the tensor's own.
  std::optional<c10::ScalarType> dtype = {};
  /// `out` must have that dtype. Otherwise values are converted into it.
  bool enforce_dtype = false;
};

/// A shard of another rank.
class RemoteShard {
 public:
  RemoteShard(ShardMetadata where, RemoteTensor tensor) : metadata_(std::move(where)), tensor_(std::move(tensor)) {}

  const ShardMetadata& metadata() const { return metadata_; }
  int owner() const { return tensor_.owner(); }
  /// A copy of its data, fetched now: see RemoteTensor.
  at::Tensor to_here(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) const {
    return tensor_.to_here(timeout);
  }

 private:
  ShardMetadata metadata_;
  RemoteTensor tensor_;
};

/// What one rank keeps of a tensor in a file: its shards, and the metadata of all.
struct ShardedTensorState {
  std::vector<Shard> local_shards;
  ShardedTensorMetadata metadata;
  ShardingSpec sharding_spec;
  int64_t local_rank = 0;  // of the group
  int64_t global_rank = 0;
  int64_t local_world_size = 1;
  int64_t global_world_size = 1;
  bool init_rrefs = false;
};

class ShardedTensor : public ShardedTensorBase {
 public:
  explicit ShardedTensor(const at::Tensor& tensor);
  /// Allocates this rank's shards. Does not communicate.
  ShardedTensor(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options = {});

  /// Does not communicate, so it checks this rank's shards alone: their number, rectangles, sizes, dtype, device and
  /// flags against the metadata, in any order.
  static ShardedTensor init_from_local_shards_and_global_metadata(std::vector<Shard> shards,
                                                                  const ShardedTensorMetadata& metadata,
                                                                  const GroupOptions& options = {},
                                                                  const std::optional<ShardingSpec>& spec = {});

  /// The only shard's data. Throws c10::NotImplementedError where there is not exactly one.
  at::Tensor local_tensor() const;
  /// The group; nothing on a rank outside it.
  const std::optional<Group>& group() const;
  /// The world's ranks of the group.
  const std::vector<int64_t>& ranks() const;
  /// Where this rank's shards are or would be.
  c10::Device device_of_group() const;

  /// Writes the whole tensor into `out` on the rank whose place in the group is `dst`; the others pass nothing.
  void gather(int64_t dst = 0, const std::optional<at::Tensor>& out = {}, const GatherOptions& options = {}) const;

  /// The same values in other rectangles of the same group. Differentiable.
  ShardedTensor reshard(const ShardingSpec& spec) const;
  /// The same in place: this tensor and every handle to it. Not for tensors with a gradient to compute.
  ShardedTensor& reshard_(const ShardingSpec& spec);

  /// Handles to the shards of the other ranks, by rank. Throws c10::Error unless made with init_rrefs.
  std::map<int64_t, std::vector<RemoteShard>> remote_shards() const;

  /// This rank's part, and the tensor again. from_state throws c10::Error where rank or world are not those of the
  /// state; rebuild takes the states of all ranks of another world, each rank those that it has, and cuts anew.
  ShardedTensorState state() const;
  static ShardedTensor from_state(const ShardedTensorState& state, const GroupOptions& options = {});
  static ShardedTensor rebuild(const std::vector<ShardedTensorState>& states, const ShardingSpec& spec,
                               const GroupOptions& options = {});
};

/// A state as bytes and back. Throws c10::ValueError for bytes that are none.
std::vector<char> save(const ShardedTensor& tensor);
ShardedTensorState load_state(const std::vector<char>& bytes);
ShardedTensor load(const std::vector<char>& bytes, const GroupOptions& options = {});

/// Of shards that the ranks have. One small exchange; `size` may leave dims open (nullopt): they and the offsets along
/// them are found from the shards in the order of ranks. Every rank may have none, one or several.
ShardedTensor init_from_local_shards(std::vector<Shard> shards, const std::vector<std::optional<int64_t>>& size,
                                     const GroupOptions& options = {});
inline ShardedTensor init_from_local_shards(std::vector<Shard> shards, const Dims& size,
                                            const GroupOptions& options = {}) {
  return init_from_local_shards(std::move(shards), std::vector<std::optional<int64_t>>(size.begin(), size.end()),
                                options);
}
/// For sizes in braces, {8, 4}, which could be either of the two.
inline ShardedTensor init_from_local_shards(std::vector<Shard> shards, std::initializer_list<int64_t> size,
                                            const GroupOptions& options = {}) {
  return init_from_local_shards(std::move(shards), Dims(size), options);
}
/// Of one tensor per rank, which is this rank's shard of `spec`. Does not communicate.
ShardedTensor init_from_local_tensor(const at::Tensor& local, const ShardingSpec& spec, const Dims& size,
                                     const GroupOptions& options = {});

/// Factories. `full` takes the dtype of its value where none is given. Random numbers depend on the seed and on the
/// element's place, not on the sharding (sherd/random.h).
ShardedTensor empty(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options = {});
ShardedTensor ones(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options = {});
ShardedTensor zeros(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options = {});
ShardedTensor full(const ShardingSpec& spec, const Dims& size, const at::Scalar& value,
                   ShardedTensorOptions options = {});
ShardedTensor rand(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options = {});
ShardedTensor randn(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options = {});

/// Cuts the tensor of the rank at place `src` of the group; the others' data does not count, but its size and dtype do.
ShardedTensor shard_tensor(const at::Tensor& tensor, const ShardingSpec& spec, int64_t src = 0,
                           const GroupOptions& options = {});

/// This rank's only shard as a plain tensor, without the dim that is cut where it has one row left (PyTorch's
/// _collect_local_shard). Differentiable.
at::Tensor collect_local_shard(const ShardedTensor& tensor);

/// A DTensor of the same memory, where every rank holds exactly the shard that `placements` give it on `mesh`, or where
/// such a mesh can be found. Throws c10::ValueError otherwise, naming a shard. Differentiable.
at::Tensor to_dtensor(const ShardedTensor& tensor);
at::Tensor to_dtensor(const ShardedTensor& tensor, const DeviceMesh& mesh, Placements placements);
/// A ShardedTensor of the same memory; replicas and Partials cannot be one. Differentiable.
ShardedTensor from_dtensor(const at::Tensor& tensor);

/// While it lives, tensors of this thread that name no group are made on this one. Does not nest, as PyTorch's
/// load_with_process_group.
class GroupScope {
 public:
  explicit GroupScope(const Group& group);
  ~GroupScope();
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;
};

/// The operators of a user's, and those for one kind of spec. They are asked in this order: custom_sharded_op, then
/// custom_sharding_spec_op of the first ShardedTensor's spec, then the built-in ones. `op` is "aten::add.Tensor"; the
/// function gets the arguments as ATen has them, and leaves the results in their place.
using ShardedOp = std::function<void(std::vector<c10::IValue>& stack)>;
void custom_sharded_op(const std::string& op, ShardedOp function);
void custom_sharding_spec_op(const std::string& spec_name, const std::string& op, ShardedOp function);
bool has_custom_sharding_spec_op(const std::string& spec_name, const std::string& op);

/// "ShardedTensor f32[8, 4] in 4 shards over ranks 0-3, here [0:2, 0:4] on rank:0/cpu"
std::string to_string(const ShardedTensor& tensor);

}  // namespace sherd::sharded
