#include <c10/util/hash.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/call.h"
#include "comm/errors.h"
#include "sherd/sharding_spec.h"

namespace sherd::sharded {

ShardMetadata::ShardMetadata(Dims offsets, Dims sizes, std::optional<RemoteDevice> where)
    : shard_offsets(std::move(offsets)), shard_sizes(std::move(sizes)), placement(std::move(where)) {
  const auto refuse = [&](const char* why) {
    detail::throw_value_error(ErrorText("ShardMetadata", why)
                                  .fact("shard_offsets", sherd::to_string(shard_offsets))
                                  .fact("shard_sizes", sherd::to_string(shard_sizes))
                                  .help("ShardMetadata({0, 2}, {4, 2}, \"rank:0/cpu\")"));
  };
  const auto is_negative = [](int64_t n) { return n < 0; };
  if (shard_offsets.size() != shard_sizes.size()) refuse("offsets and sizes have different lengths");
  if (std::any_of(shard_offsets.begin(), shard_offsets.end(), is_negative)) refuse("an offset is negative");
  if (std::any_of(shard_sizes.begin(), shard_sizes.end(), is_negative)) refuse("a size is negative");
}

std::string to_string(const ShardMetadata& shard) {
  const std::string box = sherd::to_string(shard.box());
  return shard.placement ? box + " on " + to_string(*shard.placement) : box;
}

std::string to_string(const ShardedTensorMetadata& metadata) {
  std::string text = fmt::format("{}{}, {} shards:", detail::dtype_name(metadata.tensor_properties.dtype),
                                 sherd::to_string(metadata.size), metadata.shards_metadata.size());
  for (const ShardMetadata& shard : metadata.shards_metadata) text += "\n  " + to_string(shard);
  return text;
}

void validate_non_overlapping_shards_metadata(const std::vector<ShardMetadata>& shards) {
  std::vector<Box> boxes;
  boxes.reserve(shards.size());
  for (const ShardMetadata& shard : shards) boxes.push_back(shard.box());
  const auto fault = find_overlap(boxes);
  if (!fault) return;
  detail::throw_value_error(ErrorText("ShardMetadata", "two shards overlap")
                                .fact(fmt::format("shard {}", fault->first), to_string(shards[fault->first]))
                                .fact(fmt::format("shard {}", fault->second), to_string(shards[fault->second]))
                                .fact("both hold", sherd::to_string(fault->box))
                                .help("give every element to one shard"));
}

void check_tensor(const std::vector<ShardMetadata>& shards, const Dims& size) {
  for (const ShardMetadata& shard : shards) {
    if (shard.shard_sizes.size() == size.size()) continue;
    detail::throw_value_error(ErrorText("ShardMetadata", "a shard has another number of dims than the tensor")
                                  .fact("shard", to_string(shard))
                                  .fact("tensor", sherd::to_string(size))
                                  .help(fmt::format("{} offsets and {} sizes", size.size(), size.size())));
  }
  std::vector<Box> boxes;
  boxes.reserve(shards.size());
  for (const ShardMetadata& shard : shards) boxes.push_back(shard.box());
  if (!find_tiling_fault(boxes, size)) return;
  validate_non_overlapping_shards_metadata(shards);  // says more than that there is a hole elsewhere
  detail::as_c10_errors([&] { check_tiling("ShardMetadata", boxes, size); });
}

}  // namespace sherd::sharded

size_t std::hash<sherd::sharded::ShardMetadata>::operator()(const sherd::sharded::ShardMetadata& shard) const {
  const size_t where = shard.placement ? std::hash<sherd::sharded::RemoteDevice>()(*shard.placement) : 0;
  return c10::get_hash(shard.shard_offsets, shard.shard_sizes, where);
}
