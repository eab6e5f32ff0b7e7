#include <gtest/gtest.h>

#include "sherd/layout.h"

namespace sherd {
namespace {

const Mesh kMesh({{"dp", 2}, {"tp", 4}});

void expect_both_ways(const std::string& text, const TensorText& tensor, const Mesh& mesh) {
  EXPECT_EQ(to_string(tensor, mesh), text);
  EXPECT_EQ(parse_tensor(text, mesh), tensor) << text;
}

TEST(TensorTextTest, AxesStandBehindTheDimTheyCut) {
  expect_both_ways("f32[4096@dp, 1024@tp]", {"f32", {4096, 1024}, {Shard(0), Shard(1)}}, kMesh);
  expect_both_ways("f32[64, 16@dp]", {"f32", {64, 16}, {Shard(1), Replicate()}}, kMesh);
  expect_both_ways("f32[64@dp@tp]", {"f32", {64}, {Shard(0), Shard(0)}}, kMesh);
}

TEST(TensorTextTest, PartialsStandBehindTheShape) {
  expect_both_ways("f32[64, 16] P(sum)@tp", {"f32", {64, 16}, {Replicate(), Partial()}}, kMesh);
  expect_both_ways("bf16[] P(sum)@dp P(avg)@tp", {"bf16", {}, {Partial(), Partial(ReduceOp::avg)}}, kMesh);
}

TEST(TensorTextTest, OptionsStandBehindTheAxis) {
  expect_both_ways("i64[10@dp(cuts=0:3:10), 4@tp(split=2)]",
                   {"i64", {10, 4}, {Ragged(0, {0, 3, 10}), StridedShard(1, 2)}}, kMesh);
}

TEST(TensorTextTest, AxesWithoutNamesAreNumbers) {
  expect_both_ways("f32[64@0, 8@1]", {"f32", {64, 8}, {Shard(0), Shard(1)}}, Mesh({{"", 2}, {"", 4}}));
}

TEST(TensorTextTest, SpacesAreFree) {
  EXPECT_EQ(parse_tensor(" f32 [ 64 @ dp ( split = 2 ) , 8 ]P( sum )@ tp ", kMesh),
            (TensorText{"f32", {64, 8}, {StridedShard(0, 2), Partial()}}));
}

}  // namespace
}  // namespace sherd
