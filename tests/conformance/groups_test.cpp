// Several groups of one world, on every transport.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "conformance/transport.h"
#include "sherd/device_mesh.h"

namespace sherd::testing {
namespace {

int64_t total_of_ranks(const Group& group, const Rank& rank) {
  const at::Tensor total = at::full({1}, rank.world.rank(), rank.options.dtype(at::kLong));
  all_reduce(group, total).wait();
  return total.item<int64_t>();
}

TEST_P(TransportGroupsTest, DisjointGroupsWorkAtOnce) {
  run(4, [&](Rank& rank) {
    const int me = rank.world.rank();
    const Group mine = me % 2 == 0 ? rank.world.group({0, 2}) : rank.world.group({1, 3});
    // The two groups make different numbers of different calls.
    for (int i = 0; i < (me % 2 == 0 ? 50 : 20); ++i) {
      EXPECT_EQ(total_of_ranks(mine, rank), me % 2 == 0 ? 2 : 4);
      if (me % 2 == 0) barrier(mine);
    }
  });
}

TEST_P(TransportGroupsTest, OverlappingGroupsWorkInTurn) {
  run(3, [&](Rank& rank) {
    const int me = rank.world.rank();
    for (int i = 0; i < 10; ++i) {
      if (me == 0 || me == 1) {
        EXPECT_EQ(total_of_ranks(rank.world.group({0, 1}), rank), 1);
      }
      if (me == 1 || me == 2) {
        EXPECT_EQ(total_of_ranks(rank.world.group({1, 2}), rank), 3);
      }
      EXPECT_EQ(total_of_ranks(rank.group, rank), 3);
    }
  });
}

TEST_P(TransportGroupsTest, AGroupHasTheOrderItWasGiven) {
  run(3, [&](Rank& rank) {
    const int me = rank.world.rank();
    if (me != 0 && me != 2) return;
    const Group backwards = rank.world.group({2, 0});
    EXPECT_EQ(backwards.rank(), me == 2 ? 0 : 1);
    const at::Tensor all = at::empty({2}, rank.options.dtype(at::kLong));
    all_gather(backwards, all, at::full({1}, me, all.options())).wait();
    EXPECT_EQ(all[0].item<int64_t>(), 2);
    EXPECT_EQ(all[1].item<int64_t>(), 0);
    EXPECT_EQ(total_of_ranks(rank.world.group({0, 2}), rank), 2);
  });
}

TEST_P(TransportGroupsTest, TheSameRanksOverTheSameBackendAreOneGroup) {
  run(2, [&](Rank& rank) {
    const Group again = rank.world.group();
    EXPECT_EQ(again, rank.group);
    EXPECT_EQ(total_of_ranks(again, rank), total_of_ranks(rank.group, rank));
    // Another backend makes another group of the same ranks; both work.
    const Group other = rank.world.group(rank.group.ranks(), GetParam().other);
    EXPECT_NE(other, rank.group);
    EXPECT_EQ(total_of_ranks(other, rank), total_of_ranks(rank.group, rank));
    const Group third = rank.world.group(rank.group.ranks(), GetParam().third);
    EXPECT_EQ(total_of_ranks(third, rank), total_of_ranks(rank.group, rank));
  });
}

TEST_P(TransportGroupsTest, TheAxesOfACubeTalkSeparately) {
  run(8, [&](Rank& rank) {
    const int me = rank.world.rank();
    const DeviceMesh mesh =
        init_device_mesh(c10::DeviceTypeName(rank.options.device().type(), true), {2, 2, 2}, {"pp", "dp", "tp"});
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(total_of_ranks(mesh.group("tp"), rank), 2 * (me & 6) + 1);
      EXPECT_EQ(total_of_ranks(mesh.group("dp"), rank), 2 * (me & 5) + 2);
      EXPECT_EQ(total_of_ranks(mesh.group("pp"), rank), 2 * (me & 3) + 4);
    }
    EXPECT_EQ(total_of_ranks(mesh[std::vector<std::string>{"dp", "tp"}].flatten("dp_tp").group(0), rank),
              me < 4 ? 6 : 22);
    EXPECT_EQ(total_of_ranks(mesh.flatten("all").group(0), rank), 28);
  });
}

TEST_P(TransportGroupsTest, PartOfTheWorldWorksWhileTheOthersDoSomethingElse) {
  run(4, [&](Rank& rank) {
    const int me = rank.world.rank();
    if (me == 1) return;  // never hears of the mesh
    if (me == 3) {
      EXPECT_THROW(rank.world.group({0, 2}), c10::ValueError);
      return;
    }
    const DeviceMesh pair(c10::DeviceTypeName(rank.options.device().type(), true), Mesh({{"pair", 2}}, {0, 2}));
    EXPECT_EQ(total_of_ranks(pair.group("pair"), rank), 2);
  });
}

}  // namespace
}  // namespace sherd::testing
