#include "sherd/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "sherd/collectives.h"

namespace sherd {
namespace {

using Names = std::vector<std::string>;
using ::testing::ElementsAre;

// Rank 5 of a pretended world of 8, on a cube: pp 1, dp 0, tp 1.
class DeviceMeshTest : public ::testing::Test {
 protected:
  World world = fake_world(5, 8);
  WorldScope scope{world};
  DeviceMesh cube = init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
};

TEST_F(DeviceMeshTest, KnowsItsShapeAndWhereThisRankStands) {
  EXPECT_EQ(to_string(cube), "[pp=2, dp=2, tp=2]");
  EXPECT_EQ(cube.ndim(), 3);
  EXPECT_EQ(cube.size(), 8);
  EXPECT_EQ(cube.size(1), 2);
  EXPECT_EQ(cube.device_type(), c10::DeviceType::CPU);
  EXPECT_EQ(cube.device(), c10::Device("cpu"));
  EXPECT_EQ(cube.world(), world);
  EXPECT_EQ(cube.coordinate(), (Dims{1, 0, 1}));
  EXPECT_EQ(cube.local_rank("pp"), 1);
  EXPECT_EQ(cube.local_rank(1), 0);
  EXPECT_EQ(cube.local_rank("tp"), 1);
}

TEST_F(DeviceMeshTest, GroupsGoThroughThisRankAlongEachAxis) {
  EXPECT_THAT(cube.group("pp").ranks(), ElementsAre(1, 5));
  EXPECT_THAT(cube.group("dp").ranks(), ElementsAre(5, 7));
  EXPECT_THAT(cube.group("tp").ranks(), ElementsAre(4, 5));
  EXPECT_THAT(cube.groups(), ElementsAre(cube.group(0), cube.group(1), cube.group(2)));
  EXPECT_EQ(cube.group("tp").rank(), 1);
  EXPECT_EQ(cube.group("tp").name(), "ranks 4, 5");
}

TEST_F(DeviceMeshTest, MayHaveAnyNumberOfAxesAndNoNames) {
  const DeviceMesh line = init_device_mesh("cpu", {8});
  EXPECT_EQ(to_string(line), "[8]");
  EXPECT_EQ(line.coordinate(), (Dims{5}));
  EXPECT_EQ(line.group(0), world.group());
  const DeviceMesh deep = init_device_mesh("cpu", {2, 1, 2, 1, 2});
  EXPECT_EQ(deep.coordinate(), (Dims{1, 0, 0, 0, 1}));
  EXPECT_EQ(deep.group(3).size(), 1);
  const WorldScope first(fake_world(0, 8));
  const DeviceMesh point("cpu", Mesh());
  EXPECT_EQ(point.ndim(), 0);
  EXPECT_EQ(point.size(), 1);
  EXPECT_EQ(point.coordinate(), Dims());
}

TEST_F(DeviceMeshTest, MayPlaceRanksInAnyOrder) {
  const DeviceMesh mesh("cpu", Mesh({{"dp", 2}, {"tp", 2}}, {7, 5, 3, 1}));
  EXPECT_EQ(to_string(mesh), "[dp=2, tp=2]{7, 5, 3, 1}");
  EXPECT_EQ(mesh.coordinate(), (Dims{0, 1}));
  EXPECT_THAT(mesh.group("dp").ranks(), ElementsAre(5, 1));
  EXPECT_THAT(mesh.group("tp").ranks(), ElementsAre(7, 5));
}

TEST_F(DeviceMeshTest, ARankOutsideGetsNoCoordinate) {
  const DeviceMesh others = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  EXPECT_EQ(others.coordinate(), std::nullopt);
  EXPECT_EQ(others.size(), 4);
  EXPECT_THROW(others.group(0), c10::ValueError);
  EXPECT_EQ(others, init_device_mesh("cpu", {2, 2}, {"dp", "tp"}));
}

TEST_F(DeviceMeshTest, EqualStructureIsOneMesh) {
  const DeviceMesh same("cpu", Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}}));
  EXPECT_EQ(cube, same);
  EXPECT_EQ(cube.identity(), same.identity());
  EXPECT_EQ(cube["dp"].identity(), cube["dp"].identity());
  // However it came about.
  const DeviceMesh dp("cpu", Mesh({{"dp", 2}}, {5, 7}));
  EXPECT_EQ(dp.identity(), cube["dp"].identity());
  EXPECT_EQ(dp.root(), dp);
  EXPECT_EQ(cube["dp"].root(), cube);
  EXPECT_EQ(cube.flatten("all").unflatten(0, {{"pp", 2}, {"dp", 2}, {"tp", 2}}), cube);
}

TEST_F(DeviceMeshTest, AnyDifferenceMakesAnotherMesh) {
  EXPECT_NE(cube, init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "sp"}));
  EXPECT_NE(cube, init_device_mesh("cpu", {2, 2, 2}));
  EXPECT_NE(cube, init_device_mesh("cpu", {2, 4}));
  EXPECT_NE(cube, DeviceMesh("cpu", Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}}, {1, 0, 2, 3, 4, 5, 6, 7})));
  EXPECT_NE(cube, init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"}, {{"dp", "gloo"}}));
  EXPECT_NE(cube, init_device_mesh("meta", {2, 2, 2}, {"pp", "dp", "tp"}));
  // The same ranks have one group all the same.
  EXPECT_EQ(cube.group("tp"), init_device_mesh("cpu", {2, 2, 2}).group(2));
  EXPECT_NE(cube.group("dp"), init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"}, {{"dp", "gloo"}}).group("dp"));
}

TEST_F(DeviceMeshTest, AMeshBelongsToItsWorld) {
  const WorldScope inner(fake_world(5, 8));
  EXPECT_NE(init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"}), cube);
}

TEST_F(DeviceMeshTest, IsSlicedByOneName) {
  const DeviceMesh tp = cube["tp"];
  EXPECT_EQ(to_string(tp), "[tp=2]{4-5}");
  EXPECT_EQ(tp.coordinate(), (Dims{1}));
  EXPECT_EQ(tp.group("tp"), cube.group("tp"));
  EXPECT_EQ(tp.root(), cube);
}

TEST_F(DeviceMeshTest, IsSlicedBySeveralNames) {
  const DeviceMesh outer = cube[Names{"pp", "tp"}];
  EXPECT_EQ(to_string(outer), "[pp=2, tp=2]{0-1, 4-5}");
  EXPECT_EQ(outer.group("pp"), cube.group("pp"));
  EXPECT_EQ(outer.group("tp"), cube.group("tp"));
  EXPECT_EQ(outer["tp"], cube["tp"]);
  EXPECT_EQ(outer["tp"].root(), cube);
  EXPECT_EQ((cube[{"pp", "dp", "tp"}]), cube);
  EXPECT_EQ((cube[{"pp", "tp"}]), outer);
  EXPECT_EQ(cube[{"pp"}], cube["pp"]);
}

TEST_F(DeviceMeshTest, FlattenJoinsAllAxes) {
  EXPECT_EQ(to_string(cube.flatten("all")), "[all=8]");
  EXPECT_EQ(cube.flatten("all").group(0), world.group());
  const DeviceMesh part = cube[Names{"dp", "tp"}].flatten();
  EXPECT_EQ(to_string(part), "[dp_tp=4]{4-7}");
  EXPECT_EQ(part.coordinate(), (Dims{1}));
  EXPECT_EQ(part.root(), cube);
  EXPECT_EQ((cube[{"dp", "tp"}].flatten()), part);
  EXPECT_EQ(to_string(init_device_mesh("cpu", {2, 4}).flatten()), "[8]");
  EXPECT_EQ(cube["tp"].flatten("tp"), cube["tp"]);
}

TEST_F(DeviceMeshTest, FlattenedNamesAreFoundFromTheRoot) {
  const DeviceMesh part = cube[Names{"dp", "tp"}].flatten("dp_tp");
  EXPECT_EQ(cube["dp_tp"], part);
  EXPECT_EQ(cube["dp"]["dp_tp"], part);  // a sub-mesh has the same root
  const DeviceMesh both = cube[Names{"pp", "dp_tp"}];
  EXPECT_EQ(to_string(both), "[pp=2, dp_tp=4]");
  EXPECT_EQ(both.group("dp_tp"), part.group(0));
  EXPECT_EQ(both.group("pp"), cube.group("pp"));
}

TEST_F(DeviceMeshTest, UnflattenSplitsAnAxis) {
  const DeviceMesh line = init_device_mesh("cpu", {8}, {"all"});
  const DeviceMesh split = line.unflatten(0, {{"dp", 2}, {"tp", 4}});
  EXPECT_EQ(to_string(split), "[dp=2, tp=4]");
  EXPECT_EQ(split.coordinate(), (Dims{1, 1}));
  EXPECT_THAT(split.group("tp").ranks(), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(split.root(), line);
  EXPECT_EQ(to_string(cube.unflatten(1, {{"a", 1}, {"b", 2}})), "[pp=2, a=1, b=2, tp=2]");
}

TEST_F(DeviceMeshTest, ConcatenatePutsAxesSideBySide) {
  EXPECT_EQ(DeviceMesh::concatenate({cube["pp"], cube["dp"], cube["tp"]}), cube);
  const DeviceMesh turned = DeviceMesh::concatenate({cube["tp"], cube["pp"]});
  EXPECT_EQ(to_string(turned), "[tp=2, pp=2]{0, 4, 1, 5}");
  EXPECT_EQ(turned.coordinate(), (Dims{1, 1}));
  EXPECT_EQ(turned.group("pp"), cube.group("pp"));
  EXPECT_EQ(turned.root(), cube);
  EXPECT_EQ(DeviceMesh::concatenate({cube["dp"]}), cube["dp"]);
  const DeviceMesh flat = cube[Names{"pp", "dp"}].flatten("pp_dp");
  EXPECT_EQ(to_string(DeviceMesh::concatenate({flat, cube["tp"]})), "[pp_dp=4, tp=2]");
}

TEST_F(DeviceMeshTest, IsMadeOfAGroupThatExists) {
  const Group group = world.group({5, 2});
  const DeviceMesh mesh = DeviceMesh::from_group(group, "cpu", "dp");
  EXPECT_EQ(to_string(mesh), "[dp=2]{5, 2}");
  EXPECT_EQ(mesh.group("dp"), group);
  EXPECT_EQ(mesh.coordinate(), (Dims{0}));
  EXPECT_EQ(to_string(DeviceMesh::from_group(group, "cpu")), "[2]{5, 2}");
  EXPECT_EQ(mesh, DeviceMesh::from_group(group, "cpu", "dp"));
  EXPECT_EQ(mesh, DeviceMesh("cpu", Mesh({{"dp", 2}}, {5, 2})));
}

TEST_F(DeviceMeshTest, IsMadeOfSeveralGroups) {
  const DeviceMesh mesh =
      DeviceMesh::from_groups({cube.group("pp"), cube.group("tp")}, "cpu", Mesh({{"a", 2}, {"b", 2}}, {0, 1, 4, 5}));
  EXPECT_EQ(mesh.group("a"), cube.group("pp"));
  EXPECT_EQ(mesh.group("b"), cube.group("tp"));
  EXPECT_EQ(mesh.coordinate(), (Dims{1, 1}));
}

TEST_F(DeviceMeshTest, ScopesNest) {
  const MeshScope outer(cube);
  EXPECT_EQ(current_mesh(), cube);
  {
    const MeshScope inner(cube["tp"]);
    EXPECT_EQ(current_mesh(), cube["tp"]);
  }
  EXPECT_EQ(current_mesh(), cube);
  std::thread([] { EXPECT_THROW(current_mesh(), c10::ValueError); }).join();
}

TEST_F(DeviceMeshTest, OutlivesItsParentAndItsHandleToTheWorld) {
  std::optional<DeviceMesh> tp;
  {
    const WorldScope inner(fake_world(0, 4));
    tp = init_device_mesh("cpu", {2, 2}, {"dp", "tp"})["tp"];
  }
  EXPECT_EQ(to_string(tp->root()), "[dp=2, tp=2]");
  EXPECT_EQ(tp->world().size(), 4);
  EXPECT_EQ(tp->root()["tp"], *tp);
}

TEST(DeviceMeshOfThousandsTest, CostsWhatOneRankNeeds) {
  const WorldScope scope(fake_world(4097, 16384));
  const DeviceMesh mesh = init_device_mesh("cpu", {16, 32, 32}, {"pp", "dp", "tp"});
  EXPECT_EQ(mesh.coordinate(), (Dims{4, 0, 1}));
  EXPECT_EQ(mesh.group("dp").size(), 32);
  EXPECT_EQ(mesh["tp"].group(0).ranks().front(), 4096);
}

// With real ranks.

TEST(DeviceMeshOfThreadsTest, PartOfTheWorldMakesAMeshAlone) {
  spawn(4, [](World& world) {
    if (world.rank() % 2 == 0) {
      const DeviceMesh even("cpu", Mesh({{"dp", 2}}, {0, 2}));
      const at::Tensor total = at::full({1}, world.rank(), at::kLong);
      all_reduce(even.group("dp"), total).wait();
      EXPECT_EQ(total.item<int64_t>(), 2);
    } else {
      barrier(world.group({1, 3}));  // something else
    }
  });
}

TEST(DeviceMeshOfThreadsTest, AnAxisMayHaveABackendOfItsOwn) {
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"}, {{"dp", "gloo"}});
    for (const char* axis : {"dp", "tp"}) {
      const at::Tensor total = at::full({1}, world.rank(), at::kLong);
      all_reduce(mesh.group(axis), total).wait();
      EXPECT_EQ(total.item<int64_t>(), axis[0] == 'd' ? 2 * (world.rank() % 2) + 2 : 4 * (world.rank() / 2) + 1);
    }
    // Slices and splits keep it.
    EXPECT_EQ(mesh["dp"].group("dp"), mesh.group("dp"));
    EXPECT_EQ(mesh.unflatten(0, {{"a", 2}, {"b", 1}}).group("a"), mesh.group("dp"));
  });
}

}  // namespace
}  // namespace sherd
