#pragma once
// ShardingSpecs of every kind, drawn from a seed that all ranks share.

#include <random>
#include <vector>

#include "sherd/sharded_tensor.h"

namespace sherd::testing {

class SpecMaker {
 public:
  SpecMaker(uint32_t seed, int64_t ranks) : random_(seed), ranks_(ranks) {}

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }

  Dims size(int64_t least = 0) {
    Dims size;
    for (int64_t d = below(3) + 1; d > 0; --d) size.push_back(least + below(8));
    return size;
  }

  /// Chunks over permuted ranks, fewer or more than there are; or a grid whose cells lie anywhere.
  sharded::ShardingSpec spec(const Dims& size) {
    if (size.empty() || below(2) == 0) return grid(size);
    return chunks(size);
  }

  sharded::ShardingSpec chunks(const Dims& size) {
    std::vector<int64_t> order;
    for (int64_t r = 0; r < ranks_; ++r) order.push_back(r);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<sharded::RemoteDevice> placements;
    const int64_t count = below(3) == 0 ? 1 + below(2 * ranks_) : ranks_;
    for (int64_t i = 0; i < count; ++i) placements.push_back(on(order[static_cast<size_t>(i % ranks_)]));
    const auto ndim = static_cast<int64_t>(size.size());
    return sharded::ChunkShardingSpec(below(2 * ndim) - ndim, std::move(placements));
  }

  sharded::ShardingSpec grid(const Dims& size) {
    std::vector<sharded::ShardMetadata> shards = {{Dims(size.size(), 0), size, on(below(ranks_))}};
    for (size_t d = 0; d < size.size(); ++d) {
      if (size[d] < 2 || below(3) == 0) continue;
      const int64_t cut = 1 + below(size[d] - 1);
      std::vector<sharded::ShardMetadata> halves;
      for (const auto& shard : shards) {
        auto first = shard;
        auto second = shard;
        first.shard_sizes[d] = cut;
        second.shard_offsets[d] = cut;
        second.shard_sizes[d] -= cut;
        second.placement = on(below(ranks_));
        halves.push_back(std::move(first));
        halves.push_back(std::move(second));
      }
      shards = std::move(halves);
    }
    std::shuffle(shards.begin(), shards.end(), random_);
    return sharded::EnumerableShardingSpec(std::move(shards));
  }

 private:
  static sharded::RemoteDevice on(int64_t rank) { return {rank, c10::Device(c10::kCPU)}; }

  std::mt19937 random_;
  int64_t ranks_;
};

}  // namespace sherd::testing
