#include "sherd/sharding_spec.h"

#include <c10/util/hash.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "comm/errors.h"
#include "sherd/layout.h"

namespace sherd::sharded {
namespace {

using PlacementList = std::vector<RemoteDevice>;

// Equal lists are one object, as long as somebody has it.
std::shared_ptr<const PlacementList> shared_list(PlacementList placements) {
  static std::mutex mutex;
  static auto* lists = new std::unordered_multimap<size_t, std::weak_ptr<const PlacementList>>;
  size_t hash = placements.size();
  for (const RemoteDevice& device : placements) hash = c10::hash_combine(hash, std::hash<RemoteDevice>()(device));
  const std::lock_guard lock(mutex);
  auto [at, end] = lists->equal_range(hash);
  while (at != end) {
    const auto list = at->second.lock();
    if (list && *list == placements) return list;
    at = list ? std::next(at) : lists->erase(at);
  }
  auto list = std::make_shared<const PlacementList>(std::move(placements));
  lists->emplace(hash, list);
  return list;
}

size_t checked_dim(int64_t dim, const Dims& size) {
  const auto ndim = static_cast<int64_t>(size.size());
  if (dim >= -ndim && dim < ndim) return static_cast<size_t>(dim < 0 ? dim + ndim : dim);
  detail::throw_value_error(ErrorText("ChunkShardingSpec", "the dim is out of range")
                                .fact("dim", std::to_string(dim))
                                .fact("tensor", sherd::to_string(size))
                                .help(ndim == 0 ? "an EnumerableShardingSpec with one shard for a scalar"
                                                : fmt::format("a dim between {} and {}", -ndim, ndim - 1)));
}

// The shards in the order of a chunk spec along `dim`, where they are one.
std::optional<ChunkShardingSpec> as_chunks(std::vector<ShardMetadata> shards, const Dims& size, size_t dim) {
  std::stable_sort(shards.begin(), shards.end(), [&](const ShardMetadata& a, const ShardMetadata& b) {
    return a.shard_offsets[dim] < b.shard_offsets[dim];
  });
  PlacementList placements;
  for (const ShardMetadata& shard : shards) {
    if (!shard.placement) return std::nullopt;
    placements.push_back(*shard.placement);
  }
  ChunkShardingSpec spec(static_cast<int64_t>(dim), std::move(placements));
  for (size_t i = 0; i < shards.size(); ++i) {
    if (spec.shard(size, i).box() != shards[i].box()) return std::nullopt;
  }
  return spec;
}

}  // namespace

ChunkShardingSpec::ChunkShardingSpec(int64_t dim, PlacementList placements) : dim_(dim) {
  if (placements.empty()) {
    detail::throw_value_error(ErrorText("ChunkShardingSpec", "no placements")
                                  .fact("placements", "[]")
                                  .help("ChunkShardingSpec(0, {\"rank:0/cpu\", \"rank:1/cpu\"})"));
  }
  placements_ = shared_list(std::move(placements));
}

ShardMetadata ChunkShardingSpec::shard(const Dims& size, size_t index) const {
  const size_t dim = checked_dim(dim_, size);
  ShardMetadata shard;
  shard.shard_offsets.assign(size.size(), 0);
  shard.shard_sizes = size;
  const Run rows = chunk(size[dim], static_cast<int64_t>(count()), static_cast<int64_t>(index));
  shard.shard_offsets[dim] = rows.offset;
  shard.shard_sizes[dim] = rows.size;
  shard.placement = (*placements_)[index];
  return shard;
}

void ChunkShardingSpec::check(const Dims& size) const { checked_dim(dim_, size); }

bool ChunkShardingSpec::equals(const SpecKind& other) const {
  const auto* spec = dynamic_cast<const ChunkShardingSpec*>(&other);
  return spec != nullptr && spec->dim_ == dim_ && spec->placements_ == placements_;
}

std::string ChunkShardingSpec::text() const {
  constexpr size_t kShown = 8;
  std::string text = fmt::format("ChunkShardingSpec(dim={}", dim_);
  for (size_t i = 0; i < std::min(kShown, count()); ++i) text += ", " + to_string((*placements_)[i]);
  if (count() > kShown) text += fmt::format(", ... {} in all", count());
  return text + ")";
}

EnumerableShardingSpec::EnumerableShardingSpec(std::vector<ShardMetadata> shards) {
  const auto refuse = [&](const char* why, const ShardMetadata& shard) {
    detail::throw_value_error(ErrorText("EnumerableShardingSpec", why)
                                  .fact("first shard", to_string(shards.front()))
                                  .fact("other shard", to_string(shard))
                                  .help("shards of one tensor"));
  };
  if (shards.empty()) {
    detail::throw_value_error(
        ErrorText("EnumerableShardingSpec", "no shards")
            .fact("shards", "[]")
            .help("EnumerableShardingSpec({ShardMetadata({0, 0}, {4, 2}, \"rank:0/cpu\"), ...})"));
  }
  for (const ShardMetadata& shard : shards) {
    if (shard.shard_sizes.size() != shards.front().shard_sizes.size()) refuse("shards of different ndim", shard);
  }
  validate_non_overlapping_shards_metadata(shards);
  shards_ = std::make_shared<const std::vector<ShardMetadata>>(std::move(shards));
}

ShardMetadata EnumerableShardingSpec::shard(const Dims&, size_t index) const { return (*shards_)[index]; }

void EnumerableShardingSpec::check(const Dims& size) const { check_tensor(*shards_, size); }

bool EnumerableShardingSpec::equals(const SpecKind& other) const {
  const auto* spec = dynamic_cast<const EnumerableShardingSpec*>(&other);
  return spec != nullptr && (spec->shards_ == shards_ || *spec->shards_ == *shards_);
}

std::string EnumerableShardingSpec::text() const {
  constexpr size_t kShown = 8;
  std::string text = "EnumerableShardingSpec(";
  for (size_t i = 0; i < std::min(kShown, count()); ++i) text += (i == 0 ? "" : ", ") + to_string((*shards_)[i]);
  if (count() > kShown) text += fmt::format(", ... {} in all", count());
  return text + ")";
}

ShardedTensorMetadata ShardingSpec::build_metadata(const Dims& size, const TensorProperties& properties) const {
  kind_->check(size);
  ShardedTensorMetadata metadata{{}, size, properties};
  metadata.shards_metadata.reserve(kind_->count());
  for (size_t i = 0; i < kind_->count(); ++i) metadata.shards_metadata.push_back(kind_->shard(size, i));
  return metadata;
}

std::string to_string(const ShardingSpec& spec) { return spec.kind().text(); }

ShardingSpec infer_sharding_spec(const std::vector<ShardMetadata>& shards, const Dims& size) {
  // A chunk spec cuts one dim: the one in which an offset is not 0.
  std::optional<size_t> dim;
  for (const ShardMetadata& shard : shards) {
    for (size_t d = 0; d < shard.shard_offsets.size(); ++d) {
      if (shard.shard_offsets[d] == 0) continue;
      if (dim && *dim != d) return EnumerableShardingSpec(shards);
      dim = d;
    }
  }
  if (dim && *dim < size.size()) {
    if (auto chunks = as_chunks(shards, size, *dim)) return *std::move(chunks);
  }
  return EnumerableShardingSpec(shards);
}

int64_t get_split_size(int64_t dim_size, int64_t chunks) { return (dim_size + chunks - 1) / chunks; }

int64_t get_chunked_dim_size(int64_t dim_size, int64_t split_size, int64_t index) {
  return std::max<int64_t>(0, std::min(dim_size, split_size * (index + 1)) - split_size * index);
}

std::pair<int64_t, int64_t> get_chunk_sharding_params(int64_t dim_size, int64_t chunks, const ChunkShardingSpec& spec,
                                                      int64_t rank) {
  const auto& placements = spec.placements();
  const auto found = std::find_if(placements.begin(), placements.end(),
                                  [&](const RemoteDevice& device) { return device.rank == rank; });
  if (found == placements.end()) {
    detail::throw_value_error(ErrorText("ChunkShardingSpec", "the rank is not among the placements")
                                  .fact("rank", std::to_string(rank))
                                  .fact("spec", spec.text())
                                  .help(fmt::format("a placement \"rank:{}/cpu\"", rank)));
  }
  const Run rows = chunk(dim_size, chunks, found - placements.begin());
  return {rows.offset, rows.size};
}

}  // namespace sherd::sharded
