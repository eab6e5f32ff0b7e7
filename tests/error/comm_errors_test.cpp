// Every error of comm, whole: what a user reads when ranks, groups, meshes or collectives are used wrongly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "error/rank_errors.h"
#include "sherd/collectives.h"
#include "sherd/device_mesh.h"
#include "sherd/redistribute.h"
#include "sherd/world.h"

namespace sherd::testing {
namespace {

using Names = std::vector<std::string>;

// A mesh of the pretended world of 4 ranks in which the tests below stand at rank 0.
class MeshErrorTest : public ::testing::Test {
 protected:
  World world = fake_world(0, 4);
  WorldScope scope{world};
  DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
};

TEST_F(MeshErrorTest, LargerThanTheWorld) {
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 4}, {"dp", "tp"});
            }),
            "init_device_mesh: the mesh is larger than the world\n"
            "  mesh: [dp=2, tp=4] needs rank 7\n"
            "  world: 4 ranks\n"
            "  help: start more ranks: sherd run -n 8 -- ./program, or sherd::spawn(8, fn)");
  EXPECT_EQ(value_error([] {
              DeviceMesh("cpu", Mesh({{"dp", 2}}, {0, 9}));
            }),
            "init_device_mesh: the mesh is larger than the world\n"
            "  mesh: [dp=2]{0, 9} needs rank 9\n"
            "  world: 4 ranks\n"
            "  help: start more ranks: sherd run -n 10 -- ./program, or sherd::spawn(10, fn)");
}

TEST_F(MeshErrorTest, DuplicateNames) {
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 2}, {"dp", "dp"});
            }),
            "Mesh: two axes are called dp\n"
            "  axes: [dp=2, dp=2]\n"
            "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
}

TEST_F(MeshErrorTest, NamesThatDoNotFitTheShape) {
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 2}, {"dp"});
            }),
            "init_device_mesh: one name for each mesh axis is needed\n"
            "  shape: [2, 2]\n"
            "  names: dp\n"
            "  help: init_device_mesh(\"cpu\", {2, 4}, {\"dp\", \"tp\"})");
}

TEST_F(MeshErrorTest, BadSize) {
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 0});
            }),
            "Mesh: axis 1 has size 0\n"
            "  axes: [2, 0]\n"
            "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
}

TEST_F(MeshErrorTest, BadDeviceType) {
  for (const char* text : {"cuda:1", "quantum", ""}) {
    EXPECT_EQ(value_error([&] { init_device_mesh(text, {4}); }),
              std::string("init_device_mesh: not a device type\n"
                          "  given: \"") +
                  text +
                  "\"\n"
                  "  help: \"cpu\" or \"cuda\", without an index: each rank takes the device of its local rank");
  }
}

TEST_F(MeshErrorTest, DeviceThatIsNotThere) {
  EXPECT_EQ(value_error([] { init_device_mesh("xpu", {4}); }),
            "init_device_mesh: this machine has no such device\n"
            "  device: xpu\n"
            "  help: init_device_mesh(\"cpu\", ...)");
}

TEST_F(MeshErrorTest, BadBackendOfAnAxis) {
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 2}, {"dp", "tp"}, {{"dp", "carrier-pigeon"}});
            }),
            "backend: there is no backend called \"carrier-pigeon\"\n"
            "  text: \"carrier-pigeon\"\n"
            "  known: threads, auto, shm, gloo, nccl, mpi, fake\n"
            "  help: \"cpu:gloo,cuda:nccl\", or one name for all devices");
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 2}, {"dp", "tp"}, {{"pp", "gloo"}});
            }),
            "axis: there is no axis called \"pp\"\n"
            "  mesh: [dp=2, tp=2]\n"
            "  axes: dp, tp\n"
            "  help: mesh.axis(\"dp\")");
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 2}, {"dp", "tp"}, {{"dp", "gloo"}, {"dp", "threads"}});
            }),
            "init_device_mesh: an axis is given two backends\n"
            "  axis: dp\n"
            "  backends: gloo and threads\n"
            "  help: {{\"dp\", \"gloo\"}}");
}

TEST_F(MeshErrorTest, UnknownAxis) {
  const std::string text =
      "axis: there is no axis called \"pp\"\n"
      "  mesh: [dp=2, tp=2]\n"
      "  axes: dp, tp\n"
      "  help: mesh.axis(\"dp\")";
  EXPECT_EQ(value_error([&] { mesh["pp"]; }), text);
  EXPECT_EQ(value_error([&] { mesh.group("pp"); }), text);
  EXPECT_EQ(value_error([&] { mesh.local_rank("pp"); }), text);
  EXPECT_EQ(value_error([&] { mesh[Names{"dp", "pp"}]; }), text);
  EXPECT_EQ(value_error([] {
              init_device_mesh("cpu", {2, 2})["dp"];
            }),
            "axis: there is no axis called \"dp\"\n"
            "  mesh: [2, 2], whose axes have no names\n"
            "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
}

TEST_F(MeshErrorTest, AxisNumberOutOfRange) {
  for (const int64_t axis : {-1, 2}) {
    EXPECT_EQ(value_error([&] { mesh.group(axis); }),
              "group: there is no such mesh axis\n"
              "  axis: " +
                  std::to_string(axis) +
                  "\n"
                  "  mesh: [dp=2, tp=2]\n"
                  "  help: axes go from 0 to 1");
  }
}

TEST_F(MeshErrorTest, SliceInAnotherOrder) {
  EXPECT_EQ(value_error([&] {
              mesh[Names{"tp", "dp"}];
            }),
            "mesh[...]: axes must be named once each, in the order of the mesh\n"
            "  given: tp, dp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: mesh[{\"dp\", \"tp\"}]");
  EXPECT_EQ(value_error([&] {
              mesh[Names{"dp", "dp"}];
            }),
            "mesh[...]: axes must be named once each, in the order of the mesh\n"
            "  given: dp, dp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: mesh[{\"dp\"}]");
  EXPECT_EQ(value_error([&] { mesh[Names{}]; }),
            "mesh[...]: axes must be named once each, in the order of the mesh\n"
            "  given: none\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: mesh[{\"dp\", \"tp\"}]");
}

TEST_F(MeshErrorTest, RankOutsideTheMesh) {
  const DeviceMesh others("cpu", Mesh({{"dp", 2}}, {2, 3}));
  const auto text = [](const std::string& operation) {
    return operation +
           ": this rank is not in the mesh\n"
           "  rank: 0\n"
           "  mesh: [dp=2]{2-3}\n"
           "  help: if (mesh.coordinate()) { ... }";
  };
  EXPECT_EQ(value_error([&] { others.group("dp"); }), text("group"));
  EXPECT_EQ(value_error([&] { others["dp"]; }), text("mesh[...]"));
  EXPECT_EQ(value_error([&] { DeviceMesh::concatenate({others}); }), text("concatenate"));
}

TEST_F(MeshErrorTest, FlattenToANameThatIsTaken) {
  EXPECT_EQ(value_error([&] { mesh.flatten("dp"); }),
            "flatten: the root mesh has an axis of this name\n"
            "  name: dp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: mesh.flatten(\"all\")");
  EXPECT_EQ(value_error([&] { mesh["dp"].flatten("tp"); }),
            "flatten: the root mesh has an axis of this name\n"
            "  name: tp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: mesh.flatten(\"all\")");
  mesh["dp"].flatten("alias");
  EXPECT_EQ(value_error([&] { mesh.flatten("alias"); }),
            "flatten: another flattened mesh has this name\n"
            "  name: alias\n"
            "  that mesh: [alias=2]{0, 2}\n"
            "  this mesh: [alias=4]\n"
            "  help: mesh.flatten(\"other_name\")");
}

TEST_F(MeshErrorTest, UnflattenThatDoesNotFit) {
  EXPECT_EQ(value_error([&] {
              mesh.unflatten(1, {{"a", 2}, {"b", 2}});
            }),
            "unflatten: the sizes do not multiply to the axis's 2\n"
            "  axis: tp of [dp=2, tp=2]\n"
            "  into: [a=2, b=2]\n"
            "  help: mesh.unflatten(1, {{\"a\", 2}, {\"b\", 1}})");
  EXPECT_EQ(value_error([&] {
              mesh.unflatten(2, {{"a", 2}});
            }),
            "unflatten: there is no axis 2\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: axes are numbered from 0 to 1");
}

TEST_F(MeshErrorTest, ConcatenateWhatDoesNotFit) {
  EXPECT_EQ(value_error([] { DeviceMesh::concatenate({}); }),
            "concatenate: no mesh given\n"
            "  help: DeviceMesh::concatenate({mesh[\"dp\"], mesh[\"tp\"]})");
  EXPECT_EQ(value_error([&] {
              DeviceMesh::concatenate({mesh["dp"], mesh["dp"]});
            }),
            "concatenate: the meshes overlap\n"
            "  mesh: [dp=2]{0, 2}\n"
            "  mesh: [dp=2]{0, 2}\n"
            "  help: DeviceMesh::concatenate({mesh[\"dp\"], mesh[\"tp\"]})");
  const DeviceMesh other = init_device_mesh("cpu", {4}, {"x"});
  EXPECT_EQ(value_error([&] {
              DeviceMesh::concatenate({mesh["dp"], other});
            }),
            "concatenate: the meshes come from different root meshes\n"
            "  mesh: [dp=2]{0, 2} of [dp=2, tp=2]\n"
            "  mesh: [x=4]\n"
            "  help: slice both from one mesh");
}

TEST_F(MeshErrorTest, FromGroupsThatDoNotFit) {
  const Group dp = mesh.group("dp");
  const Group tp = mesh.group("tp");
  EXPECT_EQ(value_error([&] { DeviceMesh::from_groups({dp}, "cpu", mesh.mesh()); }),
            "from_groups: one group for each mesh axis is needed\n"
            "  groups: 1\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: DeviceMesh::from_groups({dp, tp}, \"cpu\", parse_mesh(\"[dp=2, tp=2]\"))");
  EXPECT_EQ(value_error([&] {
              DeviceMesh::from_groups({tp, dp}, "cpu", mesh.mesh());
            }),
            "from_groups: a group does not fit the mesh\n"
            "  axis: dp\n"
            "  group: ranks 0, 1\n"
            "  mesh: ranks 0, 2 along this axis\n"
            "  help: pass the group of this rank along each axis, in the order of the axes");
  EXPECT_EQ(value_error([&] { DeviceMesh::from_group(dp, "cuda:0"); }),
            "from_group: not a device type\n"
            "  given: \"cuda:0\"\n"
            "  help: \"cpu\" or \"cuda\", without an index: each rank takes the device of its local rank");
}

TEST_F(MeshErrorTest, NoCurrentMesh) {
  EXPECT_EQ(value_error([] { current_mesh(); }),
            "current_mesh: no mesh is in use in this thread\n"
            "  scopes: none\n"
            "  help: sherd::MeshScope scope(mesh);");
}

TEST(GroupErrorTest, MembersThatCannotBe) {
  const World world = fake_world(1, 4);
  EXPECT_EQ(value_error([&] {
              world.group({1, 4});
            }),
            "group: a rank is not in the world\n"
            "  rank: 4\n"
            "  world: 4 ranks\n"
            "  help: ranks go from 0 to 3");
  EXPECT_EQ(value_error([&] {
              world.group({1, 2, 1});
            }),
            "group: a rank is named twice\n"
            "  ranks: [1, 2, 1]\n"
            "  help: name each rank once");
  EXPECT_EQ(value_error([&] {
              world.group({0, 2});
            }),
            "group: this rank is not among the members\n"
            "  rank: 1\n"
            "  members: 0, 2\n"
            "  help: make a group on its members alone");
  EXPECT_EQ(value_error([&] { world.group({}); }),
            "group: no rank is named\n"
            "  ranks: []\n"
            "  help: world.group({0, 1})");
}

TEST(GroupErrorTest, ThreadsAreNoRanksOfMpi) {
  std::string message;
  try {
    spawn(2, [](World& world) { barrier(world.group()); }, {.backend = "mpi"});
  } catch (const c10::DistBackendError& error) {
    message = error.what_without_backtrace();
  }
  EXPECT_EQ(message,
            "barrier: the ranks of this world are threads of one process\n"
            "  backend: mpi\n"
            "  help: mpirun -n 4 ./program, with sherd::init({.backend = \"mpi\"})");
}

TEST(GroupErrorTest, BackendsThatCannotBe) {
  const World world = fake_world(0, 2);
  EXPECT_EQ(value_error([&] {
              world.group({0, 1}, "cpu:gloo,cuda:ucx");
            }),
            "backend: there is no backend called \"ucx\"\n"
            "  text: \"cpu:gloo,cuda:ucx\"\n"
            "  known: threads, auto, shm, gloo, nccl, mpi, fake\n"
            "  help: \"cpu:gloo,cuda:nccl\", or one name for all devices");
  EXPECT_EQ(value_error([&] {
              world.group({0, 1}, "cpu:gloo,cuda:mpi");
            }),
            "backend: mpi is for tensors of the CPU alone\n"
            "  text: \"cpu:gloo,cuda:mpi\"\n"
            "  help: \"cpu:mpi,cuda:nccl\"");
  EXPECT_EQ(value_error([&] {
              world.group({0, 1}, "tpu:gloo");
            }),
            "backend: not a device type\n"
            "  given: \"tpu\"\n"
            "  help: \"cpu\" or \"cuda\", without an index: each rank takes the device of its local rank");
  EXPECT_EQ(value_error([&] {
              world.group({0, 1}, "cpu:gloo,cpu:threads");
            }),
            "backend: cpu is given two backends\n"
            "  text: \"cpu:gloo,cpu:threads\"\n"
            "  help: \"cpu:gloo,cuda:nccl\", or one name for all devices");
  EXPECT_EQ(value_error([] { spawn(2, [](World&) {}, {.backend = "carrier-pigeon"}); }),
            "backend: there is no backend called \"carrier-pigeon\"\n"
            "  text: \"carrier-pigeon\"\n"
            "  known: threads, auto, shm, gloo, nccl, mpi, fake\n"
            "  help: \"cpu:gloo,cuda:nccl\", or one name for all devices");
}

TEST(GroupErrorTest, ADeviceWithoutABackend) {
  const auto errors = errors_of_ranks(2, [](World& world) { all_reduce(world.group(), at::ones({1})).wait(); },
                                      {.backend = "cuda:threads"});
  EXPECT_THAT(errors, ::testing::Each("all_reduce: the group has no backend for this kind of device\n"
                                      "  device: cpu\n"
                                      "  group: ranks 0, 1\n"
                                      "  backends: cuda:threads\n"
                                      "  help: WorldOptions{.backend = \"cpu:gloo,cuda:nccl\"}"));
}

TEST(GroupErrorTest, ThreadsInAWorldOfProcesses) {
  // A pretended world has no threads either.
  const World world = fake_world(0, 2);
  EXPECT_EQ(comm_error([&] {
              barrier(world.group({0, 1}, "threads"));
            }),
            "barrier: the ranks of this world are no threads of one process\n"
            "  backend: threads\n"
            "  help: WorldOptions{.backend = \"gloo\"}, or start the ranks with sherd::spawn");
}

TEST(GroupErrorTest, ABackendWithOtherMembers) {
  const World world = fake_world(0, 2);
  const auto backend = world.group().backend(c10::DeviceType::CPU);
  EXPECT_EQ(value_error([&] {
              Group::from_backend(backend, {0, 1, 2});
            }),
            "from_backend: one rank for each member is needed\n"
            "  ranks: [0, 1, 2]\n"
            "  backend: 2 members\n"
            "  help: give the world's rank of each member, in the backend's order");
}

TEST(WorldErrorTest, CostsOfOneRank) {
  spawn(1, [](World& world) {
    EXPECT_EQ(value_error([&] { measure_costs(world); }),
              "measure_costs: one rank has nobody to talk to\n"
              "  world: 1 rank\n"
              "  help: sherd calibrate -n 4");
  });
}

TEST(WorldErrorTest, NoRanks) {
  EXPECT_EQ(value_error([] { spawn(0, [](World&) {}); }),
            "spawn: the number of ranks must be at least 1\n"
            "  given: 0\n"
            "  help: sherd::spawn(4, fn)");
  EXPECT_EQ(value_error([] { fake_world(4, 4); }),
            "fake_world: there is no such rank\n"
            "  rank: 4\n"
            "  world: 4 ranks\n"
            "  help: fake_world(0, 4)");
}

// What a rank is told of its own arguments, before anything moves.
class ArgumentErrorTest : public ::testing::Test {
 protected:
  Group group = fake_world(0, 2).group();
  at::Tensor floats(std::vector<int64_t> sizes) { return at::zeros(sizes); }
};

TEST_F(ArgumentErrorTest, NotContiguous) {
  const at::Tensor columns = floats({2, 3}).t();
  const auto text = [](const std::string& operation, const std::string& what) {
    return operation + ": " + what +
           " is not contiguous\n"
           "  sizes: [3, 2]\n"
           "  strides: [1, 3]\n"
           "  help: tensor.contiguous()";
  };
  EXPECT_EQ(value_error([&] { all_reduce(group, columns); }), text("all_reduce", "inout"));
  EXPECT_EQ(value_error([&] { all_gather(group, floats({12}), columns); }), text("all_gather", "in"));
  EXPECT_EQ(value_error([&] { all_gather(group, columns, floats({3})); }), text("all_gather", "out"));
  EXPECT_EQ(value_error([&] {
              all_gather_uneven(group, floats({7}), columns, {6, 1});
            }),
            text("all_gather_uneven", "in"));
  EXPECT_EQ(value_error([&] { reduce_scatter(group, floats({3}), columns); }), text("reduce_scatter", "in"));
  EXPECT_EQ(value_error([&] { all_to_all(group, columns, floats({6})); }), text("all_to_all", "out"));
  EXPECT_EQ(value_error([&] { broadcast(group, columns, 0); }), text("broadcast", "inout"));
  EXPECT_EQ(value_error([&] { scatter(group, floats({3}), columns, 0); }), text("scatter", "in"));
  EXPECT_EQ(value_error([&] { send(group, columns, 1); }), text("send", "tensor"));
  EXPECT_EQ(value_error([&] { receive(group, columns, 1); }), text("receive", "tensor"));
}

TEST_F(ArgumentErrorTest, NoTensorAtAll) {
  EXPECT_EQ(value_error([&] { all_reduce(group, at::Tensor()); }),
            "all_reduce: inout is undefined\n"
            "  inout: a tensor without contents\n"
            "  help: torch::empty(sizes)");
  EXPECT_EQ(value_error([&] { scatter(group, floats({1}), at::Tensor(), 0); }),
            "scatter: in is undefined\n"
            "  in: a tensor without contents\n"
            "  help: torch::empty(sizes)");
}

TEST_F(ArgumentErrorTest, TensorsThatAreNotPlainMemory) {
  EXPECT_EQ(value_error([&] {
              all_reduce(group, floats({2, 2}).to_sparse());
            }),
            "all_reduce: inout is not dense\n"
            "  sizes: [2, 2]\n"
            "  help: tensor.to_dense()");
  EXPECT_EQ(value_error([&] { broadcast(group, at::ones({2}, at::kComplexFloat).conj(), 0); }),
            "broadcast: inout is a conjugate or negative that is still to be computed\n"
            "  sizes: [2]\n"
            "  help: tensor.resolve_conj().resolve_neg()");
}

TEST_F(ArgumentErrorTest, WrongNumberOfElements) {
  const auto text = [](const std::string& operation, const std::string& what, int given, int needed) {
    return operation + ": " + what + " has the wrong number of elements\n  given: " + std::to_string(given) +
           "\n  needed: " + std::to_string(needed) + "\n  help: one block per rank of the group, in the group's order";
  };
  EXPECT_EQ(value_error([&] { all_gather(group, floats({5}), floats({3})); }), text("all_gather", "out", 5, 6));
  EXPECT_EQ(value_error([&] {
              all_gather_uneven(group, floats({5}), floats({3}), {2, 3});
            }),
            text("all_gather_uneven", "in", 3, 2));
  EXPECT_EQ(value_error([&] {
              all_gather_uneven(group, floats({6}), floats({3}), {2, 2});
            }),
            text("all_gather_uneven", "in", 3, 2));
  EXPECT_EQ(value_error([&] {
              all_gather_uneven(group, floats({6}), floats({2}), {2, 3});
            }),
            text("all_gather_uneven", "out", 6, 5));
  EXPECT_EQ(value_error([&] { reduce_scatter(group, floats({2}), floats({5})); }), text("reduce_scatter", "in", 5, 4));
  EXPECT_EQ(value_error([&] {
              reduce_scatter(group, floats({2}), floats({5}), ReduceOp::sum, {3, 2});
            }),
            text("reduce_scatter", "out", 2, 3));
  EXPECT_EQ(value_error([&] {
              all_to_all(group, floats({4}), floats({5}), {2, 2}, {2, 2});
            }),
            text("all_to_all", "in", 5, 4));
  EXPECT_EQ(value_error([&] { scatter(group, floats({2}), floats({6}), 0); }), text("scatter", "out", 2, 3));
}

TEST_F(ArgumentErrorTest, BlocksThatAreNotOnePerRank) {
  EXPECT_EQ(value_error([&] { all_to_all(group, floats({4}), floats({5})); }),
            "all_to_all: in does not divide into one equal block per rank\n"
            "  elements: 5\n"
            "  group: ranks 0, 1\n"
            "  help: pass the size of each block");
  const auto text = [](const std::string& operation, const std::string& given) {
    return operation + ": one block size for each rank is needed\n  given: " + given +
           "\n  group: ranks 0, 1\n  help: give a size for every rank of the group, 0 where a rank has nothing";
  };
  EXPECT_EQ(value_error([&] {
              all_gather_uneven(group, floats({5}), floats({2}), {2, 2, 1});
            }),
            text("all_gather_uneven", "[2, 2, 1]"));
  EXPECT_EQ(value_error([&] { all_gather_uneven(group, floats({5}), floats({2}), {}); }),
            text("all_gather_uneven", "[]"));
  EXPECT_EQ(value_error([&] { all_to_all(group, floats({4}), floats({4}), {2, 2}, {4}); }), text("all_to_all", "[4]"));
  EXPECT_EQ(value_error([&] {
              all_to_all(group, floats({4}), floats({4}), {2, 2}, {5, -1});
            }),
            "all_to_all: a block size is negative\n"
            "  given: [5, -1]\n"
            "  help: give a size for every rank of the group, 0 where a rank has nothing");
  EXPECT_EQ(value_error([&] {
              all_to_all(group, floats({4}), floats({4}), {1, 3}, {2, 2});
            }),
            "all_to_all: what this rank gives itself is not what it takes\n"
            "  gives: 2\n"
            "  takes: 1\n"
            "  help: in_numels[0] == out_numels[0]");
}

TEST_F(ArgumentErrorTest, InAndOutThatDiffer) {
  EXPECT_EQ(value_error([&] { all_gather(group, floats({4}), at::zeros({2}, at::kHalf)); }),
            "all_gather: in and out have different dtypes\n"
            "  in: f16\n"
            "  out: f32\n"
            "  help: out = torch::empty(sizes, in.options())");
  EXPECT_EQ(value_error([&] { all_to_all(group, floats({4}), at::zeros({4}, at::kMeta)); }),
            "all_to_all: in and out are on different devices\n"
            "  in: meta\n"
            "  out: cpu\n"
            "  help: out = torch::empty(sizes, in.options())");
}

TEST_F(ArgumentErrorTest, PlacesAndTagsThatAreNotThere) {
  const Group pair = fake_world(5, 8).group({4, 5});
  const auto text = [](const std::string& operation, int place) {
    return operation + ": there is no such place in the group\n  place: " + std::to_string(place) +
           "\n  group: ranks 4, 5, places 0 to 1\n"
           "  help: count places in the group from 0; they are not the world's ranks";
  };
  EXPECT_EQ(value_error([&] { broadcast(pair, floats({1}), 5); }), text("broadcast", 5));
  EXPECT_EQ(value_error([&] { scatter(pair, floats({1}), {}, -1); }), text("scatter", -1));
  EXPECT_EQ(value_error([&] { send(pair, floats({1}), 4); }), text("send", 4));
  EXPECT_EQ(value_error([&] { receive(pair, floats({1}), 2); }), text("receive", 2));
  EXPECT_EQ(value_error([&] { send(pair, floats({1}), 0, -3); }),
            "send: the tag is out of range\n"
            "  tag: -3\n"
            "  help: tags go from 0 to 1073741823");
  EXPECT_EQ(value_error([&] { receive(pair, floats({1}), 1).wait(); }),
            "receive: this rank has sent itself nothing\n"
            "  tag: 0\n"
            "  help: send(group, tensor, group.rank(), tag) first");
}

TEST_F(ArgumentErrorTest, ReductionsThatMakeNoSense) {
  const auto error = [&](at::ScalarType dtype, ReduceOp op) {
    return value_error([&] { all_reduce(group, at::ones({2}, at::kFloat).to(dtype), op); });
  };
  EXPECT_EQ(error(at::kLong, ReduceOp::avg),
            "all_reduce: integers have no average\n  reduction: avg\n  dtype: i64\n  help: tensor.to(torch::kFloat)");
  EXPECT_EQ(error(at::kBool, ReduceOp::avg),
            "all_reduce: bool has no average\n  reduction: avg\n  dtype: bool\n  help: tensor.to(torch::kFloat)");
  EXPECT_EQ(error(at::kComplexFloat, ReduceOp::max),
            "all_reduce: complex numbers can only be summed or multiplied\n  reduction: max\n  dtype: c64\n  help: "
            "ReduceOp::sum");
  EXPECT_EQ(error(at::kFloat, ReduceOp::band),
            "all_reduce: bitwise reductions are for integers\n  reduction: band\n  dtype: f32\n"
            "  help: ReduceOp::min, or max");
  EXPECT_EQ(error(at::kFloat8_e4m3fn, ReduceOp::sum),
            "all_reduce: tensors of this dtype can only be moved\n  reduction: sum\n  dtype: f8e4m3fn\n"
            "  help: tensor.to(torch::kFloat)");
  EXPECT_EQ(
      value_error([&] { reduce_scatter(group, at::ones({1}, at::kInt), at::ones({2}, at::kInt), ReduceOp::avg); }),
      "reduce_scatter: integers have no average\n  reduction: avg\n  dtype: i32\n"
      "  help: tensor.to(torch::kFloat)");
}

TEST(AgreeErrorTest, EveryRankHearsWhatEveryRankSays) {
  const auto errors = errors_of_ranks(3, [](World& world) {
    agree(world.group(), "save \"ckpt/100\"", [&] {
      if (world.rank() == 0) throw std::runtime_error("disk full\n  free: 0 B");
      if (world.rank() == 2) throw 7;
    });
  });
  EXPECT_THAT(errors, ::testing::Each("save \"ckpt/100\": 2 of 3 ranks failed\n"
                                      "  rank 0: disk full\n"
                                      "      free: 0 B\n"
                                      "  rank 2: an exception that is not a std::exception\n"
                                      "  help: mend what these ranks say; no rank went on"));
}

}  // namespace
}  // namespace sherd::testing
