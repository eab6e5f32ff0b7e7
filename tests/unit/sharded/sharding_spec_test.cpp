// How tensors are cut: devices of ranks, rectangles, and the two kinds of specs.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <unordered_set>

#include "sherd/sherd.h"

namespace sherd::sharded {
namespace {

TEST(RemoteDeviceTest, IsReadAndPrinted) {
  for (const char* text : {"rank:3/cuda:1", "rank:0/cpu", "worker1/cuda:0", "trainer/cpu", "cpu", "cuda:2"}) {
    EXPECT_EQ(to_string(RemoteDevice(text)), text);
  }
  EXPECT_EQ(RemoteDevice("rank:3/cuda:1"), RemoteDevice(3, c10::Device("cuda:1")));
  EXPECT_EQ(to_string(RemoteDevice("worker1")), "worker1/cpu");
  EXPECT_EQ(RemoteDevice("rank:7/cpu").rank, 7);
  const std::unordered_set<RemoteDevice> different{"rank:0/cpu", "rank:1/cpu", "rank:0/cuda", "w/cpu", "rank:0/cpu"};
  EXPECT_EQ(different.size(), 4U);
}

TEST(TensorPropertiesTest, GoThroughTheirTuple) {
  TensorProperties properties(c10::kBFloat16);
  properties.requires_grad = true;
  properties.memory_format = c10::MemoryFormat::ChannelsLast;
  EXPECT_EQ(std::get<3>(properties.to_tuple()), 1);
  EXPECT_EQ(TensorProperties::from_tuple(properties.to_tuple()), properties);
  properties.memory_format = c10::MemoryFormat::ChannelsLast3d;
  EXPECT_THROW(properties.to_tuple(), c10::ValueError);
  EXPECT_THROW(TensorProperties::from_tuple({c10::kFloat, c10::kStrided, false, 9, false}), c10::ValueError);
}

TEST(TensorPropertiesTest, HaveTheDefaultDtypeOfNow) {
  EXPECT_EQ(TensorProperties().dtype, c10::kFloat);
  torch::set_default_dtype(c10::scalarTypeToTypeMeta(c10::kDouble));
  EXPECT_EQ(TensorProperties().dtype, c10::kDouble);
  torch::set_default_dtype(c10::scalarTypeToTypeMeta(c10::kFloat));
}

TEST(ChunkShardingSpecTest, CutsAsTorchChunkDoes) {
  const ChunkShardingSpec spec(0, {"rank:0/cpu", "rank:1/cpu", "rank:2/cpu"});
  const auto metadata = ShardingSpec(spec).build_metadata({5, 2});
  ASSERT_EQ(metadata.shards_metadata.size(), 3U);
  EXPECT_EQ(to_string(metadata.shards_metadata[1]), "[2:4, 0:2] on rank:1/cpu");
  EXPECT_EQ(to_string(metadata.shards_metadata[2]), "[4:5, 0:2] on rank:2/cpu");
  // Pieces without rows stay inside the tensor.
  EXPECT_EQ(spec.shard({1, 2}, 2).box(), (Box{{1, 0}, {0, 2}}));
  EXPECT_EQ(ChunkShardingSpec(-1, {"rank:0/cpu", "rank:1/cpu"}).shard({4, 6}, 1).box(), (Box{{0, 3}, {4, 3}}));
  EXPECT_EQ(get_split_size(5, 3), 2);
  EXPECT_EQ(get_chunked_dim_size(5, 2, 2), 1);
  EXPECT_EQ(get_chunked_dim_size(1, 1, 2), 0);
  EXPECT_EQ(get_chunk_sharding_params(5, 3, spec, 2), (std::pair<int64_t, int64_t>(4, 1)));
}

TEST(ChunkShardingSpecTest, EqualPlacementsAreOneList) {
  const auto make = [] {
    std::vector<RemoteDevice> placements;
    for (int64_t rank = 0; rank < 100; ++rank) placements.emplace_back(rank, c10::Device(c10::kCPU));
    return ChunkShardingSpec(0, std::move(placements));
  };
  const ChunkShardingSpec one = make();
  EXPECT_EQ(&one.placements(), &make().placements());
  EXPECT_TRUE(ShardingSpec(one) == ShardingSpec(make()));
  EXPECT_FALSE(ShardingSpec(one) == ShardingSpec(ChunkShardingSpec(1, one.placements())));
}

TEST(InferTest, FindsTheChunkSpecWhereThereIsOne) {
  const auto infer = [](const std::vector<ShardMetadata>& shards, const Dims& size) {
    return to_string(infer_sharding_spec(shards, size));
  };
  EXPECT_EQ(
      infer({{{2, 0}, {2, 4}, "rank:0/cpu"}, {{0, 0}, {2, 4}, "rank:1/cpu"}, {{4, 0}, {1, 4}, "rank:2/cpu"}}, {5, 4}),
      "ChunkShardingSpec(dim=0, rank:1/cpu, rank:0/cpu, rank:2/cpu)");
  EXPECT_EQ(infer({{{0, 0}, {5, 2}, "rank:0/cpu"}, {{0, 2}, {5, 2}, "rank:1/cpu"}}, {5, 4}),
            "ChunkShardingSpec(dim=1, rank:0/cpu, rank:1/cpu)");
  // Not as chunks are cut; a single shard; two dims.
  EXPECT_EQ(infer({{{0, 0}, {1, 4}, "rank:0/cpu"}, {{1, 0}, {4, 4}, "rank:1/cpu"}}, {5, 4}).substr(0, 10),
            "Enumerable");
  EXPECT_EQ(infer({{{0, 0}, {5, 4}, "rank:0/cpu"}}, {5, 4}).substr(0, 10), "Enumerable");
  EXPECT_EQ(infer({{{0, 0}, {2, 2}, "rank:0/cpu"},
                   {{0, 2}, {2, 2}, "rank:1/cpu"},
                   {{2, 0}, {2, 2}, "rank:2/cpu"},
                   {{2, 2}, {2, 2}, "rank:3/cpu"}},
                  {4, 4})
                .substr(0, 10),
            "Enumerable");
}

TEST(OverlapTest, IsFoundAmongManyRectanglesAndWithHoles) {
  std::vector<ShardMetadata> shards;
  for (int64_t i = 0; i < 30; ++i) {
    for (int64_t k = 0; k < 30; ++k) shards.push_back({{3 * i, 5 * k}, {2, 4}});  // with gaps between them
  }
  EXPECT_NO_THROW(validate_non_overlapping_shards_metadata(shards));
  shards.push_back({{3 * 17 + 1, 5 * 9 + 3}, {1, 1}});
  EXPECT_THROW(validate_non_overlapping_shards_metadata(shards), c10::ValueError);
  shards.back().shard_sizes = {0, 1};  // nothing overlaps nothing
  EXPECT_NO_THROW(validate_non_overlapping_shards_metadata(shards));
}

}  // namespace
}  // namespace sherd::sharded
