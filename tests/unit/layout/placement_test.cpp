#include "sherd/placement.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

TEST(PlacementTest, PrintsInTheCanonicalForm) {
  EXPECT_EQ(to_string(Placement(Replicate())), "R");
  EXPECT_EQ(to_string(Placement(Shard(1))), "S(1)");
  EXPECT_EQ(to_string(Placement(StridedShard(0, 2))), "S(0, split=2)");
  EXPECT_EQ(to_string(Placement(Ragged(0, {0, 3, 10}))), "S(0, cuts=0:3:10)");
  EXPECT_EQ(to_string(Placement(Partial())), "P(sum)");
  EXPECT_EQ(to_string(Placements{Shard(0), Replicate(), Partial(ReduceOp::max)}), "(S(0), R, P(max))");
  EXPECT_EQ(to_string(Placements{}), "()");
}

TEST(PlacementTest, PrintsAsCode) {
  EXPECT_EQ(to_code({Shard(0), Replicate(), Partial(), Partial(ReduceOp::avg), StridedShard(1, 2), Ragged(0, {0, 3})}),
            "{Shard(0), Replicate(), Partial(), Partial(ReduceOp::avg), StridedShard(1, 2), Ragged(0, {0, 3})}");
  EXPECT_EQ(to_code({}), "{}");
}

TEST(PlacementTest, ParsesWithAnySpaces) {
  EXPECT_EQ(parse_placement(" S ( 0 ,split = 2 ) "), Placement(StridedShard(0, 2)));
  EXPECT_EQ(parse_placement("S(-1)"), Placement(Shard(-1)));
  EXPECT_EQ(parse_placement("S(0,cuts=0: 3 :10)"), Placement(Ragged(0, {0, 3, 10})));
  EXPECT_EQ(parse_placements("(S(0),R,P( sum ))"), (Placements{Shard(0), Replicate(), Partial()}));
  EXPECT_EQ(parse_placements("()"), Placements{});
}

TEST(PlacementTest, EveryReductionRoundTrips) {
  for (int op = 0; op < 8; ++op) {
    const Placement partial = Partial(static_cast<ReduceOp>(op));
    EXPECT_EQ(parse_placement(to_string(partial)), partial);
  }
}

TEST(PlacementTest, AShardOfANegativeDimIsAShard) {
  for (const Placement& p : parse_placements("(S(-1), S(-1, split=2), S(-1, cuts=0:1))")) {
    EXPECT_TRUE(is_shard(p));
    EXPECT_EQ(sharded_dim(p), -1);
  }
  for (const Placement& p : parse_placements("(R, P(sum))")) {
    EXPECT_FALSE(is_shard(p));
    EXPECT_EQ(sharded_dim(p), -1);
  }
}

}  // namespace
}  // namespace sherd
