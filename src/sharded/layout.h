#pragma once
// What is known of a ShardedTensor but its data and dtype: its size, its spec, and who holds it.

#include <memory>
#include <optional>
#include <vector>

#include "plan/transfer.h"
#include "sherd/sharded_tensor.h"
#include "tensor/boxes_meta.h"

namespace sherd::detail {

/// The ranks that hold a tensor together, as seen from this one.
class Holders {
 public:
  /// Nobody: of a ShardedTensorBase.
  Holders() = default;
  Holders(World world, Group group) : world_(std::move(world)), group_(std::move(group)) {}
  /// On a rank outside.
  Holders(World world, std::vector<int64_t> ranks)
      : world_(std::move(world)), ranks_(std::make_shared<const std::vector<int64_t>>(std::move(ranks))) {}

  const std::optional<World>& world() const { return world_; }
  const std::optional<Group>& group() const { return group_; }
  const std::vector<int64_t>& ranks() const;
  int64_t rank() const { return world_ ? world_->rank() : 0; }
  bool operator==(const Holders& other) const;

 private:
  std::optional<World> world_ = {};
  std::optional<Group> group_ = {};
  std::shared_ptr<const std::vector<int64_t>> ranks_ = {};
};
/// Throws c10::ValueError for ranks that are not in the world.
Holders holders_of(const sharded::GroupOptions& options);

struct ShardedLayout final : BoxLayout {
  sharded::ShardingSpec spec;
  Holders holders;
  std::vector<size_t> indices;  // of this rank's pieces among the spec's shards
  c10::Device device;           // of this rank's pieces, or where they would be
  bool pin_memory = false;

  ShardedLayout(sharded::ShardingSpec s, Holders h) : spec(std::move(s)), holders(std::move(h)), device(c10::kCPU) {}
  sharded::ShardMetadata metadata(size_t piece) const { return spec.kind().shard(size, indices[piece]); }
  /// The rectangles of all ranks.
  std::vector<plan::RankPart> parts() const;
};
using ShardedLayoutPtr = std::shared_ptr<const ShardedLayout>;

/// Checks the spec against the size, and the ranks in the placements. Throws c10::ValueError. `checked`: the spec is
/// known to fit.
ShardedLayoutPtr make_layout(const char* operation, const sharded::ShardingSpec& spec, const Dims& size,
                             const Holders& holders, bool checked = false);

/// The same rectangles on another kind of device.
ShardedLayoutPtr on_device(const ShardedLayout& layout, c10::Device device);

/// The layout of a ShardedTensor; null for every other tensor.
inline const ShardedLayout* sharded_layout(const at::Tensor& tensor) {
  const BoxesMeta* meta = boxes_of(tensor);
  return meta != nullptr ? dynamic_cast<const ShardedLayout*>(meta->layout.get()) : nullptr;
}
ShardedLayoutPtr shared_layout(const at::Tensor& tensor);

/// True where the rectangles of all ranks are the same, in the same order.
bool same_layout(const ShardedLayout& a, const ShardedLayout& b);

/// The layout of a ShardedTensor, or c10::ValueError "<operation>: not a ShardedTensor".
const ShardedLayout& require_sharded(const char* operation, const at::Tensor& tensor);
/// The same for calls that communicate: c10::ValueError on a ShardedTensorBase.
const ShardedLayout& require_group(const char* operation, const at::Tensor& tensor);

/// A ShardedTensor of these pieces.
at::Tensor wrap_sharded(const ShardedLayoutPtr& layout, std::vector<at::Tensor> pieces, c10::ScalarType dtype);

/// The dim that a chunk spec cuts, of a tensor that it fits.
size_t cut_dim(const sharded::ChunkShardingSpec& spec, const Dims& size);

}  // namespace sherd::detail
