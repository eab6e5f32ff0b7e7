#pragma once
// What a checkpoint asks of a tensor, and nothing more: which boxes this rank holds, what it would write, and the
// memory of one box. DTensors, ShardedTensors, LocalShardsWrappers, DTensors of wrappers and plain tensors all answer;
// derive from Checkpointable for a container of your own. Nothing here communicates.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sherd/box.h"
#include "sherd/tensor_properties.h"

namespace sherd {

/// A box of a tensor as checkpoints name it: by where it begins.
struct ChunkMetadata {
  Dims offsets;
  Dims sizes;
  Box box() const { return {offsets, sizes}; }
  bool operator==(const ChunkMetadata&) const = default;
};

/// All that is kept of a tensor beside its data.
struct TensorStorageMetadata {
  TensorProperties properties;
  Dims size;
  std::vector<ChunkMetadata> chunks;
  bool operator==(const TensorStorageMetadata&) const = default;
};

/// Which chunk of which tensor is meant. The hint says where it may stand in the list; a wrong one costs nothing.
struct ShardIndex {
  std::string name;
  std::optional<Dims> offsets = {};
  std::optional<size_t> hint = {};
  bool operator==(const ShardIndex&) const = default;
};

/// A chunk to be written.
struct WriteItem {
  std::string name;
  ChunkMetadata chunk;
  Dims global_size;
  TensorProperties properties;
  at::Tensor tensor;  // the chunk's data, not copied, without a gradient

  ShardIndex index() const { return {name, chunk.offsets, {}}; }
};

/// The ranks that hold what this one holds, because the tensor is replicated, in the order of the mesh; empty where
/// nothing is known of other ranks. Each copy of a DTensor of LocalShardsWrappers may be cut in its own way: who takes
/// chunks from several copies compares them first.
struct Copies {
  int64_t number = 0;  // this rank's place among them
  std::vector<int64_t> ranks = {};
};

struct WriteItemsOptions {
  /// Also where another rank has the same and would write it: for those who share the work out themselves.
  bool every_copy = false;
};

class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// One item per chunk. Where the tensor is replicated, the first copy's ranks have items and the others none.
  /// Throws c10::ValueError where the global size is not known.
  std::vector<WriteItem> write_items(const std::string& name, const WriteItemsOptions& options = {}) const {
    return options.every_copy || copies().number == 0 ? held_items(name) : std::vector<WriteItem>();
  }
  /// The chunks that this rank holds, those of no element left out.
  virtual std::vector<ChunkMetadata> chunk_list() const = 0;
  /// The memory of one chunk, to be read or written. Without offsets and hint: of the only one, where that is the whole
  /// tensor. Throws c10::ValueError naming the tensor and the offsets where this rank has none there.
  virtual at::Tensor shard(const ShardIndex& index) const = 0;
  virtual Dims global_size() const = 0;
  virtual Copies copies() const { return {}; }

 protected:
  virtual std::vector<WriteItem> held_items(const std::string& name) const = 0;
};

/// The chunks of a tensor of any of these kinds. It shares the tensor's memory and is good for as long as the tensor is
/// not resharded. Throws c10::ValueError for a Partial, whose value nobody has, and for a view of a DTensor that is a
/// copy.
std::unique_ptr<Checkpointable> checkpointable(const at::Tensor& tensor);

}  // namespace sherd
