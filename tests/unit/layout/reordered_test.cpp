#include "layout/reordered.h"

#include <gtest/gtest.h>

namespace sherd::detail {
namespace {

TEST(ReorderedTest, PlacementsOfAPermutedTensor) {
  const Placements before{Shard(0), Replicate(), StridedShard(2, 3), Partial(), Ragged(1, {0, 2, 5})};
  // permute({2, 0, 1}): dim 0 is dim 1 afterwards, dim 2 is dim 0, dim 1 is dim 2.
  EXPECT_EQ(reordered(before, {2, 0, 1}),
            (Placements{Shard(1), Replicate(), StridedShard(0, 3), Partial(), Ragged(2, {0, 2, 5})}));
  EXPECT_EQ(reordered({Shard(1), Shard(0)}, {1, 0}), (Placements{Shard(0), Shard(1)}));
}

}  // namespace
}  // namespace sherd::detail
