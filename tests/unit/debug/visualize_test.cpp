#include "sherd/visualize.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <mutex>

#include "error/rank_errors.h"
#include "sherd/dtensor.h"
#include "sherd/local_shards.h"
#include "sherd/sharded_tensor.h"
#include "sherd/world.h"

namespace sherd {
namespace {

constexpr VisualizeOptions kPlain{.color = false, .legend = false};

// What each of n ranks draws.
std::vector<std::string> drawn_by_ranks(int n, const std::function<std::string(World&)>& draw) {
  std::vector<std::string> drawn(static_cast<size_t>(n));
  spawn(n, [&](World& world) { drawn[static_cast<size_t>(world.rank())] = draw(world); });
  return drawn;
}

TEST(VisualizeShardingTest, ADTensorIsItsLayout) {
  const auto drawn = drawn_by_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto x = zeros({8, 6}, mesh, {Shard(0), Shard(1)});
    EXPECT_EQ(visualize_sharding(x, kPlain), visualize(x));
    EXPECT_EQ(visualize_sharding_svg(x), draw_svg(layout_of(x)));
    EXPECT_NE(visualize_sharding_html(x).find("<h2>f32[8@dp, 6@tp] on [dp=2, tp=2]</h2>"), std::string::npos);
    return visualize_sharding(x, {.color = false});
  });
  for (const std::string& picture : drawn)
    EXPECT_EQ(picture,
              "[8@dp, 6@tp] on [dp=2, tp=2]\n"
              "  0   3   6\n"
              "0 ┌───┬───┐\n"
              "  │ 0 │ 1 │\n"
              "4 ├───┼───┤\n"
              "  │ 2 │ 3 │\n"
              "8 └───┴───┘\n"
              "dp: cuts dim 0 in 2\n"
              "tp: cuts dim 1 in 2\n"
              "rank 0: [0:4, 0:3]\n"
              "rank 1: [0:4, 3:6]\n"
              "rank 2: [4:8, 0:3]\n"
              "rank 3: [4:8, 3:6]\n");
}

TEST(VisualizeShardingTest, ResultsOfOperatorsAreDrawnToo) {
  spawn(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
    const auto x = zeros({4, 6}, mesh, {Shard(1)}), w = zeros({6, 3}, mesh, {Shard(0)});
    EXPECT_NE(visualize_sharding(x.mm(w), kPlain).find("│ 0+1 │"), std::string::npos);
    EXPECT_NE(visualize_sharding(x.t().slice(0, 1, 5), kPlain).find("│ 1 │"), std::string::npos);
    EXPECT_EQ(visualize_sharding(zeros({0, 4}, mesh, {Shard(0)}), kPlain),
              "[0@tp, 4] on [tp=2]\nthe tensor has no elements\n");
  });
}

TEST(VisualizeShardingTest, ARankOutsideTheMeshDrawsItAndSaysSo) {
  const auto drawn = drawn_by_ranks(3, [](World&) {
    const DeviceMesh mesh("cpu", Mesh({{"dp", 2}}, {0, 2}));
    const auto x = zeros({4}, mesh, {Shard(0)});
    EXPECT_EQ(visualize_sharding_svg(x).find("is not in the mesh") != std::string::npos, !mesh.coordinate());
    return visualize_sharding(x, kPlain);
  });
  const std::string picture = "[4@dp] on [dp=2]{0, 2}\n0   2   4\n┌───┬───┐\n│ 0 │ 2 │\n└───┴───┘\n";
  EXPECT_EQ(drawn[0], picture);
  EXPECT_EQ(drawn[1], picture + "this rank, 1, is not in the mesh: it holds nothing\n");
  EXPECT_EQ(drawn[2], picture);
}

TEST(VisualizeShardingTest, AShardedTensorIsItsShards) {
  const auto drawn = drawn_by_ranks(2, [](World&) {
    const sharded::EnumerableShardingSpec spec(
        {{{0, 0}, {2, 4}, "rank:0/cpu"}, {{2, 0}, {2, 1}, "rank:1/cpu"}, {{2, 1}, {2, 3}, "rank:0/cpu"}});
    return visualize_sharding(sharded::zeros(spec, {4, 4}), {.color = false});
  });
  EXPECT_EQ(drawn[0],
            "ShardedTensor f32[4, 4] in 3 shards\n"
            "  0   1   4\n"
            "0 ┌───────┐\n"
            "  │ 0     │\n"
            "2 ├───┬───┤\n"
            "  │ 1 │ 0 │\n"
            "4 └───┴───┘\n"
            "rank 0: [0:2, 0:4] [2:4, 1:4]\n"
            "rank 1: [2:4, 0:1]\n");
  EXPECT_EQ(drawn[1], drawn[0]);
}

TEST(VisualizeShardingTest, AWrapperIsThisRanksBoxes) {
  const LocalShardsWrapper wrapper({torch::zeros({4, 2}), torch::zeros({4, 1})}, {{0, 0}, {0, 7}},
                                   {.global_size = Dims{4, 8}});
  EXPECT_EQ(visualize_sharding(wrapper, kPlain),
            "LocalShardsWrapper f32[4, 3] on cpu: [0:4, 0:2], [0:4, 7:8]\n"
            "  0      2      7      8\n"
            "0 ┌──────┬──────┬──────┐\n"
            "  │ here │      │ here │\n"
            "4 └──────┴──────┴──────┘\n"
            "drawn are this rank's boxes alone\n");
  const LocalShardsWrapper unsized({torch::zeros({2})}, {{5}});
  EXPECT_NE(visualize_sharding(unsized, kPlain).find("0      5      7\n"), std::string::npos);
  const LocalShardsWrapper none({}, std::vector<Dims>{}, {.global_size = Dims{4}});
  EXPECT_NE(visualize_sharding(none, kPlain).find("this rank holds nothing"), std::string::npos);
}

TEST(VisualizeShardingTest, ADTensorOfWrappersIsThisRanksBoxes) {
  const auto drawn = drawn_by_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
    const LocalShardsWrapper wrapper({torch::zeros({1, 4})}, {{world.rank() == 0 ? 1 : 0, 0}},
                                     {.global_size = Dims{2, 4}});
    return visualize_sharding(from_local(wrapper, mesh, {Shard(0)}), kPlain);
  });
  EXPECT_TRUE(
      drawn[0].ends_with("  0      4\n0 ┌──────┐\n  │      │\n1 ├──────┤\n  │ here │\n2 └──────┘\n"
                         "drawn are this rank's boxes alone\n"))
      << drawn[0];
  EXPECT_NE(drawn[0], drawn[1]);
}

TEST(VisualizeShardingTest, APlainTensorIsOneCell) {
  EXPECT_EQ(visualize_sharding(torch::zeros({4, 6}), kPlain),
            "f32[4, 6], not distributed\n  0     6\n0 ┌─────┐\n  │ all │\n4 └─────┘\n");
  EXPECT_EQ(visualize_sharding(torch::zeros({}), kPlain), "f32[], not distributed\n┌─────┐\n│ all │\n└─────┘\n");
  EXPECT_NE(visualize_sharding(torch::zeros({2, 3, 4, 5, 6}), kPlain).find("dims 3 (down) and 4 (across) of 5"),
            std::string::npos);
}

TEST(VisualizeShardingTest, AnUndefinedTensorIsRefused) {
  for (const auto& draw : {std::function<void()>([] { visualize_sharding({}); }),
                           {[] { visualize_sharding_svg({}); }},
                           {[] { visualize_sharding_html({}); }}})
    EXPECT_EQ(testing::value_error(draw),
              "visualize_sharding: the tensor is undefined\n"
              "  help: a parameter's gradient is undefined before the first backward()");
}

TEST(VisualizeShardingTest, ColorsAreThereOnRequestAndNotInAPipe) {
  const auto x = torch::zeros({4});
  EXPECT_NE(visualize_sharding(x, {.color = true}).find('\x1b'), std::string::npos);
  EXPECT_EQ(visualize_sharding(x, {.color = false}).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace sherd
