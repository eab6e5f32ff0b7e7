#include "sharded/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/call.h"
#include "comm/errors.h"
#include "comm/rank_list.h"
#include "sharded/group_scope.h"
#include "sherd/layout.h"
#include "sherd/rpc.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using sharded::ChunkShardingSpec;
using sharded::EnumerableShardingSpec;
using sharded::RemoteDevice;
using sharded::ShardingSpec;
using sharded::ShardMetadata;

// The rank that a placement names.
class PlacementRanks {
 public:
  PlacementRanks(const char* operation, const Holders& holders)
      : operation_(operation), holders_(holders), sorted_(holders.ranks()) {
    std::sort(sorted_.begin(), sorted_.end());
  }

  int64_t operator()(const ShardMetadata& shard) const {
    if (!shard.placement) refuse(shard, "a shard has no placement", "ShardMetadata(offsets, sizes, \"rank:0/cpu\")");
    const RemoteDevice& device = *shard.placement;
    if (!holders_.world()) return device.rank.value_or(0);
    const int64_t rank = device.worker.empty() ? device.rank.value_or(-1) : rank_of_worker(shard);
    if (rank == -1) refuse(shard, "a placement names no rank", "rank:0/" + device.device.str());
    if (std::binary_search(sorted_.begin(), sorted_.end(), rank)) return rank;
    refuse(shard, "a placement names a rank that is not in the group",
           fmt::format("rank:{}/{}", holders_.ranks().front(), device.device.str()));
  }

 private:
  [[noreturn]] void refuse(const ShardMetadata& shard, const char* why, const std::string& help) const {
    throw_value_error(ErrorText(operation_, why)
                          .fact("shard", to_string(shard))
                          .fact("group", "ranks " + rank_list(holders_.ranks()))
                          .help(help));
  }
  int64_t rank_of_worker(const ShardMetadata& shard) const {
    if (!has_rpc(*holders_.world())) {
      throw_error(ErrorText(operation_, "a worker's name means nothing before init_rpc")
                      .fact("shard", to_string(shard))
                      .help("sherd::init_rpc(world), or \"rank:N/device\""));
    }
    const std::vector<std::string> names = rpc_names(*holders_.world());
    const auto found = std::find(names.begin(), names.end(), shard.placement->worker);
    if (found == names.end()) {
      refuse(shard, "no rank has this name", "a name of RpcOptions: \"" + names.front() + "/cpu\"");
    }
    return found - names.begin();
  }

  const char* operation_;
  const Holders& holders_;
  std::vector<int64_t> sorted_;
};

std::vector<bool> cut_dims(const ShardingSpec& spec, const Dims& size) {
  std::vector<bool> cut(size.size(), false);
  if (const auto* chunks = spec.as<ChunkShardingSpec>()) {
    const size_t dim = cut_dim(*chunks, size);
    cut[dim] = chunks->count() > 1 && chunk(size[dim], static_cast<int64_t>(chunks->count()), 1).size > 0;
    return cut;
  }
  for (size_t i = 0; i < spec.kind().count(); ++i) {
    const ShardMetadata shard = spec.kind().shard(size, i);
    if (numel(shard.shard_sizes) == 0) continue;
    for (size_t d = 0; d < size.size(); ++d) cut[d] = cut[d] || shard.shard_sizes[d] != size[d];
  }
  return cut;
}

RemoteDevice moved_to(RemoteDevice placement, c10::Device device) {
  if (placement.device.type() != device.type()) placement.device = c10::Device(device.type());
  return placement;
}

}  // namespace

const std::vector<int64_t>& Holders::ranks() const {
  static const std::vector<int64_t> nobody;
  if (group_) return group_->ranks();
  return ranks_ ? *ranks_ : nobody;
}

bool Holders::operator==(const Holders& other) const {
  return world_ == other.world_ && group_ == other.group_ && (group_ || ranks() == other.ranks());
}

Holders holders_of(const sharded::GroupOptions& options) {
  const World world = current_world();
  if (options.group) return {world, *options.group};
  if (options.ranks) {
    const auto& ranks = *options.ranks;
    if (std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end()) return {world, world.group(ranks)};
    for (const int64_t rank : ranks) {
      if (rank >= 0 && rank < world.size()) continue;
      throw_value_error(ErrorText("ShardedTensor", "a rank of the group is not in the world")
                            .fact("ranks", to_string(ranks))
                            .fact("world", rank_count(world.size()))
                            .help(fmt::format("ranks go from 0 to {}", world.size() - 1)));
    }
    return {world, ranks};
  }
  if (const auto& scope = group_of_scope()) return {world, *scope};
  return {world, world.group()};
}

ShardedLayoutPtr make_layout(const char* operation, const ShardingSpec& spec, const Dims& size, const Holders& holders,
                             bool checked) {
  for (const int64_t n : size) {
    if (n >= 0) continue;
    throw_value_error(ErrorText(operation, "a size is negative").fact("size", to_string(size)).help("sizes >= 0"));
  }
  if (!checked) spec.kind().check(size);
  auto layout = std::make_shared<ShardedLayout>(spec, holders);
  layout->size = size;
  layout->cut = cut_dims(spec, size);
  const PlacementRanks rank_of(operation, holders);
  const int64_t me = holders.rank();
  std::optional<c10::Device> device;
  std::optional<c10::DeviceType> kind;
  for (size_t i = 0; i < spec.kind().count(); ++i) {
    ShardMetadata shard = spec.kind().shard(size, i);
    if (!holders.world()) continue;  // its owner says which are here
    const bool mine = rank_of(shard) == me;
    kind = kind.value_or(shard.placement->device.type());
    if (!mine) continue;
    device = device.value_or(shard.placement->device);
    layout->indices.push_back(i);
    layout->boxes.push_back(shard.box());
  }
  if (holders.world()) {
    const std::string type = c10::DeviceTypeName(kind.value_or(c10::kCPU), true);
    if (holders.group()) {
      layout->mesh = DeviceMesh::from_group(*holders.group(), type);
      layout->device = device.value_or(layout->mesh->device());
    }
  }
  return layout;
}

std::vector<plan::RankPart> ShardedLayout::parts() const {
  const PlacementRanks rank_of("ShardedTensor", holders);
  std::map<int64_t, size_t> numbers;
  std::vector<plan::RankPart> parts;
  for (size_t i = 0; i < spec.kind().count(); ++i) {
    const ShardMetadata shard = spec.kind().shard(size, i);
    const int64_t rank = rank_of(shard);
    parts.push_back({rank, numbers[rank]++, plan::grid_of(shard.box())});
  }
  return parts;
}

ShardedLayoutPtr on_device(const ShardedLayout& layout, c10::Device device) {
  const auto moved = [&]() -> ShardingSpec {
    if (const auto* chunks = layout.spec.as<ChunkShardingSpec>()) {
      std::vector<RemoteDevice> placements;
      for (const RemoteDevice& placement : chunks->placements()) placements.push_back(moved_to(placement, device));
      return ChunkShardingSpec(chunks->dim(), std::move(placements));
    }
    std::vector<ShardMetadata> shards = layout.spec.build_metadata(layout.size).shards_metadata;
    for (ShardMetadata& shard : shards) {
      if (shard.placement) shard.placement = moved_to(*shard.placement, device);
    }
    return EnumerableShardingSpec(std::move(shards));
  };
  auto result = std::make_shared<ShardedLayout>(moved(), layout.holders);
  result->size = layout.size;
  result->cut = layout.cut;
  result->boxes = layout.boxes;
  result->indices = layout.indices;
  result->device = device;
  if (layout.mesh) {
    result->mesh = DeviceMesh::from_group(*layout.holders.group(), c10::DeviceTypeName(device.type(), true));
  }
  return result;
}

size_t cut_dim(const ChunkShardingSpec& spec, const Dims& size) {
  return static_cast<size_t>(spec.dim() < 0 ? spec.dim() + static_cast<int64_t>(size.size()) : spec.dim());
}

ShardedLayoutPtr shared_layout(const Tensor& tensor) {
  return std::static_pointer_cast<const ShardedLayout>(boxes_of(tensor)->layout);
}

bool same_layout(const ShardedLayout& a, const ShardedLayout& b) {
  if (&a == &b) return true;
  return a.size == b.size && a.holders == b.holders && a.indices == b.indices && a.spec == b.spec;
}

const ShardedLayout& require_sharded(const char* operation, const Tensor& tensor) {
  if (const ShardedLayout* layout = sharded_layout(tensor)) return *layout;
  throw_value_error(ErrorText(operation, "not a ShardedTensor")
                        .fact("tensor", tensor.defined()
                                            ? dtype_name(tensor.scalar_type()) + to_string(tensor.sizes().vec())
                                            : "undefined")
                        .help("sherd::sharded::shard_tensor(tensor, spec)"));
}

const ShardedLayout& require_group(const char* operation, const Tensor& tensor) {
  const ShardedLayout& layout = require_sharded(operation, tensor);
  if (layout.holders.world()) return layout;
  throw_value_error(ErrorText(operation, "a ShardedTensorBase has no group to talk with")
                        .fact("tensor", to_string(layout.size))
                        .help("ShardedTensor::init_from_local_shards_and_global_metadata(shards, metadata)"));
}

Tensor wrap_sharded(const ShardedLayoutPtr& layout, std::vector<Tensor> pieces, c10::ScalarType dtype) {
  const c10::Device device = pieces.empty() ? layout->device : pieces.front().device();
  return wrap_pieces(layout, std::move(pieces), dtype, device);
}

}  // namespace sherd::detail
