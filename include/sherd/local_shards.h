#pragma once
// LocalShardsWrapper: several rectangles of one rank as one tensor. It is an ordinary at::Tensor, and what a DTensor
// has on a rank that holds several pieces of it: sherd::from_local(wrapper, mesh, placements). docs/local_shards.md
// shows it and says what differs from PyTorch's. Nothing here communicates.

#include <ATen/core/Tensor.h>

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "sherd/box.h"
#include "sherd/checkpointable.h"

namespace sherd {

struct LocalShardsOptions {
  /// The size of the tensor that the shards are parts of. A rank without shards must give it.
  std::optional<Dims> global_size = {};
  /// Of the shards; for a rank without shards torch's default dtype and the CPU where they are not given.
  std::optional<c10::ScalarType> dtype = {};
  std::optional<c10::Device> device = {};
};

bool is_local_shards(const at::Tensor& tensor);

/// A handle, as at::Tensor is. Its size counts, per dim, the rows that some shard has: gaps are closed up, so that
/// [0:4, 0:2] and [0:4, 7:8] make 4 x 3. Element-wise operators, in place or not, go shard by shard; a plain tensor of
/// that size takes part as if it lay there. A reduction of all its elements is this rank's own.
class LocalShardsWrapper : public at::Tensor {
 public:
  /// The shards are kept, not copied. `offsets` say where each begins in the whole tensor. Throws c10::ValueError that
  /// names the shard where their numbers differ, a shard has other dims, dtype, device or flags than the first, does
  /// not fit `options`, or holds elements of another one.
  LocalShardsWrapper(std::vector<at::Tensor> shards, const std::vector<Dims>& offsets,
                     const LocalShardsOptions& options = {});
  /// Throws c10::ValueError where the tensor is none.
  explicit LocalShardsWrapper(const at::Tensor& tensor);

  /// In the order in which they were given. Those of a leaf require a gradient where it does.
  const std::vector<at::Tensor>& local_shards() const;
  std::vector<Dims> local_sizes() const;
  std::vector<Dims> local_offsets() const;
  const std::vector<ChunkMetadata>& local_chunks() const;
  /// Its size is the global one where that is known, else this tensor's.
  TensorStorageMetadata storage_metadata() const;
  /// No shard has an element.
  bool is_empty_shard() const;
  /// True where there are shards and all are pinned.
  bool is_pinned() const;
  LocalShardsWrapper& requires_grad_(bool requires_grad = true);
  /// Of the shards' elements.
  int64_t size_bytes() const;

  /// What sherd::checkpointable(wrapper) answers, without making a table: see there.
  std::vector<WriteItem> write_items(const std::string& name) const;
  std::vector<ChunkMetadata> chunk_list() const;
  at::Tensor shard(const ShardIndex& index) const;
};

/// "LocalShardsWrapper f32[4, 3] on cpu: [0:4, 0:2], [0:4, 7:8]"
std::string to_string(const LocalShardsWrapper& wrapper);
/// The same, with the values of each shard.
std::ostream& operator<<(std::ostream& out, const LocalShardsWrapper& wrapper);

}  // namespace sherd

/// By identity: two handles to one tensor have one hash.
template <>
struct std::hash<sherd::LocalShardsWrapper> {
  size_t operator()(const sherd::LocalShardsWrapper& wrapper) const {
    return std::hash<const void*>()(wrapper.unsafeGetTensorImpl());
  }
};
