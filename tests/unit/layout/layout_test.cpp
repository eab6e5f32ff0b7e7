#include "sherd/layout.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

std::vector<Run> runs(std::initializer_list<Run> list) { return list; }

TEST(LayoutTest, ChunksAreThoseOfTorchChunk) {
  EXPECT_EQ(chunk(10, 4, 0), (sherd::Run{0, 3}));
  EXPECT_EQ(chunk(10, 4, 3), (sherd::Run{9, 1}));
  EXPECT_EQ(chunk(5, 4, 3), (sherd::Run{5, 0}));
  EXPECT_EQ(chunk(3, 5, 4), (sherd::Run{3, 0}));
  EXPECT_EQ(chunk(0, 3, 1), (sherd::Run{0, 0}));
  EXPECT_EQ(chunk(INT64_MAX, 2, 1), (sherd::Run{int64_t{1} << 62, (int64_t{1} << 62) - 1}));
  EXPECT_EQ(chunk(3, INT64_MAX, INT64_MAX - 1), (sherd::Run{3, 0}));
}

// PyTorch's own example in its note on _StridedShard: "tp" cuts first, then "dp".
TEST(LayoutTest, AStridedShardCutsAfterTheAxisToItsRight) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const Layout layout{mesh, {8, 8}, {StridedShard(0, 2), Shard(0)}};
  EXPECT_EQ(local_runs(layout, 0, Dims{0, 0}), runs({{0, 2}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{0, 1}), runs({{4, 2}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{1, 0}), runs({{2, 2}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{1, 1}), runs({{6, 2}}));
}

TEST(LayoutTest, ALoneStridedShardHoldsOneRunPerChunk) {
  const Layout layout{Mesh({{"dp", 2}}), {10, 3}, {StridedShard(0, 3)}};
  EXPECT_EQ(local_runs(layout, 0, Dims{0}), runs({{0, 2}, {4, 2}, {8, 1}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{1}), runs({{2, 2}, {6, 2}, {9, 1}}));
  EXPECT_EQ(local_shape(layout, Dims{0}), (Dims{5, 3}));
  EXPECT_EQ(local_boxes(layout, Dims{0}), (std::vector<Box>{{{0, 0}, {2, 3}}, {{4, 0}, {2, 3}}, {{8, 0}, {1, 3}}}));
}

TEST(LayoutTest, RunsThatTouchAreOne) {
  // Chunks of one row: rank 0 holds the first piece of each, which is all there is.
  const Layout layout{Mesh({{"dp", 2}}), {3}, {StridedShard(0, 3)}};
  EXPECT_EQ(local_runs(layout, 0, Dims{0}), runs({{0, 3}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{1}), runs({}));
}

TEST(LayoutTest, RaggedCutsWhereItIsTold) {
  const Layout layout{Mesh({{"dp", 3}}), {10}, {Ragged(0, {0, 3, 3, 10})}};
  EXPECT_EQ(local_boxes(layout, Dims{0}), (std::vector<Box>{{{0}, {3}}}));
  EXPECT_EQ(local_boxes(layout, Dims{1}), (std::vector<Box>{}));
  EXPECT_EQ(local_boxes(layout, Dims{2}), (std::vector<Box>{{{3}, {7}}}));
}

TEST(LayoutTest, RaggedAfterAShardCutsEachOfItsPieces) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const Layout layout{mesh, {10}, checked_placements("test", mesh, {10}, {Shard(0), Ragged(0, {0, 1, 5, 9, 10})})};
  EXPECT_EQ(local_runs(layout, 0, Dims{0, 0}), runs({{0, 1}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{0, 1}), runs({{1, 4}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{1, 0}), runs({{5, 4}}));
  EXPECT_EQ(local_runs(layout, 0, Dims{1, 1}), runs({{9, 1}}));
}

TEST(LayoutTest, AnEmptyShardBeginsAtTheEndOfTheDim) {
  const Layout layout{Mesh({{"dp", 2}, {"tp", 2}}), {1, 4}, {Shard(0), Shard(0)}};
  EXPECT_EQ(local_shape(layout, Dims{1, 0}), (Dims{0, 4}));
  EXPECT_EQ(local_offset(layout, Dims{1, 0}), (Dims{1, 0}));
  EXPECT_TRUE(local_boxes(layout, Dims{1, 0}).empty());
}

TEST(LayoutTest, AScalarIsOneBoxOfNoDims) {
  const Layout layout{Mesh({{"dp", 2}}), {}, {Partial()}};
  EXPECT_EQ(local_boxes(layout, Dims{1}), (std::vector<Box>{Box{}}));
  EXPECT_EQ(local_shape(layout, Dims{1}), Dims{});
}

TEST(LayoutTest, AnAxisOfSizeOneSaysNothing) {
  const Mesh mesh({{"one", 1}});
  const Layout whole{mesh, {6, 4}, {Replicate()}};
  for (const Placement& p : Placements{Shard(1), StridedShard(0, 3), Ragged(0, {0, 6}), Partial(ReduceOp::max)}) {
    const Layout layout{mesh, {6, 4}, checked_placements("test", mesh, {6, 4}, {p})};
    EXPECT_EQ(local_boxes(layout, Dims{0}), local_boxes(whole, Dims{0}));
    EXPECT_TRUE(same_boxes(layout, whole)) << to_string(p);
  }
}

TEST(LayoutTest, SameBoxesSeesThroughTheWriting) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const auto layout = [&](Placements p) { return Layout{mesh, {8, 4}, std::move(p)}; };
  EXPECT_TRUE(same_boxes(layout({Shard(0), Replicate()}), layout({Ragged(0, {0, 4, 8}), Replicate()})));
  EXPECT_TRUE(same_boxes(layout({Shard(0), Replicate()}), layout({StridedShard(0, 1), Replicate()})));
  EXPECT_FALSE(same_boxes(layout({Shard(0), Replicate()}), layout({Replicate(), Shard(0)})));
  EXPECT_FALSE(same_boxes(layout({Shard(0), Replicate()}), layout({Shard(0), Partial()})));
  EXPECT_FALSE(same_boxes(layout({Partial(), Partial()}), layout({Partial(), Partial(ReduceOp::avg)})));
  EXPECT_FALSE(same_boxes(layout({Shard(0), Shard(0)}), layout({StridedShard(0, 2), Shard(0)})));
}

TEST(LayoutTest, SumAndAverageMayStandTogether) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const Placements both = {Partial(), Partial(ReduceOp::avg)};
  EXPECT_EQ(checked_placements("test", mesh, {4}, both), both);
}

// An index list would take 800 MB here, and a loop over rows or ranks would show.
TEST(LayoutTest, AHundredMillionRowsOverThousandsOfRanksAddUp) {
  const int64_t rows = 100'000'000;
  const Mesh mesh({{"a", 16}, {"b", 16}, {"c", 16}});
  for (const Placements& placements :
       {Placements{Shard(0), Shard(0), Shard(0)}, Placements{StridedShard(0, 7), Shard(0), StridedShard(0, 3)}}) {
    const Layout layout{mesh, {rows, 8}, placements};
    int64_t total = 0;
    for (int64_t i = 0; i < mesh.size(); ++i) {
      const Dims coordinate = mesh.coordinate_at(i);
      const Dims shape = local_shape(layout, coordinate);
      total += shape[0];
      if (shape[0] == 0) continue;
      const Holder holder = holder_of(layout, 0, local_offset(layout, coordinate)[0]);
      ASSERT_EQ(holder.coordinate, coordinate);
      ASSERT_EQ(holder.local_row, 0);
    }
    EXPECT_EQ(total, rows);
  }
}

TEST(LayoutTest, AHugeSplitIsClosedFormToo) {
  const Mesh mesh({{"dp", 2}});
  const int64_t rows = int64_t{1} << 40;
  const Layout layout{mesh, {rows}, {StridedShard(0, rows / 4)}};
  EXPECT_EQ(local_shape(layout, Dims{1}), (Dims{rows / 2}));
  EXPECT_EQ(local_offset(layout, Dims{1}), (Dims{2}));
  EXPECT_EQ(global_row(layout, 0, Dims{1}, rows / 2 - 1), rows - 1);
  EXPECT_EQ(holder_of(layout, 0, rows - 1), (Holder{{1}, rows / 2 - 1, rows}));
}

}  // namespace
}  // namespace sherd
