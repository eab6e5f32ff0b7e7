#pragma once
// How a ShardedTensor is cut: which rectangle lies on which device of which rank. docs/sharded.md shows it.
//
// The names, fields and rules are those of PyTorch's torch.distributed._shard. Ranks in placements are the world's.

#include <c10/core/Device.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/box.h"
#include "sherd/tensor_properties.h"

namespace at {
class Tensor;
}

namespace sherd::sharded {

/// A device of some rank: "rank:1/cuda:1", of a worker of RPC: "worker1/cpu", or of this process: "cpu".
struct RemoteDevice {
  std::string worker = {};
  std::optional<int64_t> rank = {};
  c10::Device device = c10::Device(c10::kCPU);

  RemoteDevice() = default;
  RemoteDevice(int64_t of_rank, c10::Device on) : rank(of_rank), device(on) {}
  /// Throws c10::ValueError for text of another form. A worker without a device is on its CPU.
  RemoteDevice(std::string_view text);  // NOLINT: {"rank:0/cpu", "rank:1/cpu"}
  RemoteDevice(const char* text) : RemoteDevice(std::string_view(text)) {}
  RemoteDevice(const std::string& text) : RemoteDevice(std::string_view(text)) {}
  bool operator==(const RemoteDevice&) const = default;
};
std::string to_string(const RemoteDevice& device);

/// One rectangle and where it lies. Throws c10::ValueError where the lists differ in length or hold a negative number.
struct ShardMetadata {
  Dims shard_offsets;
  Dims shard_sizes;
  std::optional<RemoteDevice> placement;

  ShardMetadata() = default;
  ShardMetadata(Dims offsets, Dims sizes, std::optional<RemoteDevice> where = {});
  Box box() const { return {shard_offsets, shard_sizes}; }
  bool operator==(const ShardMetadata&) const = default;
};
/// "[0:4, 2:6] on rank:1/cpu"
std::string to_string(const ShardMetadata& shard);

using sherd::TensorProperties;

struct ShardedTensorMetadata {
  std::vector<ShardMetadata> shards_metadata = {};  // of all ranks
  Dims size = {};
  TensorProperties tensor_properties = {};
  bool operator==(const ShardedTensorMetadata&) const = default;
};
std::string to_string(const ShardedTensorMetadata& metadata);

/// A kind of sharding. Derive from it for one of your own; a ShardingSpec holds it.
class SpecKind {
 public:
  virtual ~SpecKind() = default;
  /// The class's name: operators can be registered for it.
  virtual std::string name() const = 0;
  /// How many shards there are, and the `index`-th of a tensor of `size`, placement included.
  virtual size_t count() const = 0;
  virtual ShardMetadata shard(const Dims& size, size_t index) const = 0;
  /// Throws c10::ValueError where the spec does not fit a tensor of `size`.
  virtual void check(const Dims& size) const = 0;
  virtual bool equals(const SpecKind& other) const = 0;
  virtual std::string text() const = 0;

 protected:
  SpecKind() = default;
  SpecKind(const SpecKind&) = default;
  SpecKind& operator=(const SpecKind&) = default;
};

/// Rows of one dim in as many pieces as there are placements, as torch.chunk cuts. Nothing is stored per shard: a
/// thousand tensors over thousands of ranks share one list of placements.
class ChunkShardingSpec final : public SpecKind {
 public:
  /// Throws c10::ValueError without placements.
  ChunkShardingSpec(int64_t dim, std::vector<RemoteDevice> placements);

  int64_t dim() const { return dim_; }
  const std::vector<RemoteDevice>& placements() const { return *placements_; }

  std::string name() const override { return "ChunkShardingSpec"; }
  size_t count() const override { return placements_->size(); }
  /// Pieces without rows begin at the dim's end.
  ShardMetadata shard(const Dims& size, size_t index) const override;
  void check(const Dims& size) const override;
  bool equals(const SpecKind& other) const override;
  std::string text() const override;

 private:
  int64_t dim_;
  std::shared_ptr<const std::vector<RemoteDevice>> placements_;
};

/// Any rectangles that tile the tensor.
class EnumerableShardingSpec final : public SpecKind {
 public:
  /// Throws c10::ValueError without shards, for shards of different ndim, and where two overlap.
  explicit EnumerableShardingSpec(std::vector<ShardMetadata> shards);

  const std::vector<ShardMetadata>& shards() const { return *shards_; }

  std::string name() const override { return "EnumerableShardingSpec"; }
  size_t count() const override { return shards_->size(); }
  ShardMetadata shard(const Dims& size, size_t index) const override;
  void check(const Dims& size) const override;
  bool equals(const SpecKind& other) const override;
  std::string text() const override;

 private:
  std::shared_ptr<const std::vector<ShardMetadata>> shards_;
};

/// A handle on a spec that never changes; copies are cheap.
class ShardingSpec {
 public:
  template <std::derived_from<SpecKind> T>
  ShardingSpec(T kind) : kind_(std::make_shared<const T>(std::move(kind))) {}  // NOLINT: a spec is given as it is

  const SpecKind& kind() const { return *kind_; }
  /// The spec as this kind, or null.
  template <std::derived_from<SpecKind> T>
  const T* as() const {
    return dynamic_cast<const T*>(kind_.get());
  }

  /// All shards of a tensor of `size`. Throws c10::ValueError where the spec does not fit.
  ShardedTensorMetadata build_metadata(const Dims& size, const TensorProperties& properties = {}) const;

  bool operator==(const ShardingSpec& other) const { return kind_ == other.kind_ || kind_->equals(*other.kind_); }

 private:
  std::shared_ptr<const SpecKind> kind_;
};
/// "ChunkShardingSpec(dim=0, rank:0/cpu, rank:1/cpu)"
std::string to_string(const ShardingSpec& spec);

/// One device for something that is not cut.
struct DevicePlacementSpec {
  RemoteDevice device;
  bool operator==(const DevicePlacementSpec&) const = default;
};

/// The chunk spec that gives these shards where there is one, else the enumerable spec.
ShardingSpec infer_sharding_spec(const std::vector<ShardMetadata>& shards, const Dims& size);

/// Throw c10::ValueError naming the two shards that overlap; what is outside the tensor or not covered.
void validate_non_overlapping_shards_metadata(const std::vector<ShardMetadata>& shards);
void check_tensor(const std::vector<ShardMetadata>& shards, const Dims& size);

/// torch.chunk's arithmetic: rows per chunk, rows of chunk `index`, and where it begins with its rows.
int64_t get_split_size(int64_t dim_size, int64_t chunks);
int64_t get_chunked_dim_size(int64_t dim_size, int64_t split_size, int64_t index);
std::pair<int64_t, int64_t> get_chunk_sharding_params(int64_t dim_size, int64_t chunks, const ChunkShardingSpec& spec,
                                                      int64_t rank);

}  // namespace sherd::sharded

template <>
struct std::hash<sherd::sharded::RemoteDevice> {
  size_t operator()(const sherd::sharded::RemoteDevice& device) const;
};
template <>
struct std::hash<sherd::sharded::ShardMetadata> {
  size_t operator()(const sherd::sharded::ShardMetadata& shard) const;
};
