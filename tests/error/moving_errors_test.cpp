// Every error of moving tensors, whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

Tensor rows(const DeviceMesh& mesh, at::IntArrayRef shape = {4, 6}) {
  return distribute_tensor(torch::ones(shape), mesh, Placements(static_cast<size_t>(mesh.ndim()), Shard(0)),
                           {.source = std::nullopt});
}

class MovingErrorTest : public ::testing::Test {
 protected:
  World world = fake_world(0, 4);
  WorldScope scope{world};
  DeviceMesh mesh = init_device_mesh("cpu", {4}, {"tp"});
};

TEST_F(MovingErrorTest, ListsOfDifferentLengths) {
  EXPECT_EQ(value_error([&] {
              redistribute(std::vector<Tensor>{rows(mesh), rows(mesh)}, std::vector<Placements>{{Shard(1)}});
            }),
            "redistribute: there must be one placement list for each tensor\n"
            "  tensors: 2\n"
            "  placement lists: 1\n"
            "  help: redistribute({a, b}, {{Shard(0)}, {Shard(1)}})");
}

TEST_F(MovingErrorTest, TensorsOfTwoMeshes) {
  const DeviceMesh other = init_device_mesh("cpu", {2, 2}, {"a", "b"});
  EXPECT_EQ(value_error([&] {
              redistribute(std::vector<Tensor>{rows(mesh), rows(other)},
                           std::vector<Placements>{{Shard(1)}, {Shard(1), Shard(1)}});
            }),
            "redistribute: tensors that are moved together must be on one mesh\n"
            "  tensor 0: f32[4@tp, 6] on [tp=4]\n"
            "  tensor 1: f32[4@a@b, 6] on [a=2, b=2]\n"
            "  help: call redistribute once for each mesh");
}

TEST_F(MovingErrorTest, NoStagingBuffer) {
  EXPECT_EQ(value_error([&] { redistribute(rows(mesh), {Shard(1)}, {.staging_bytes = 0}); }),
            "redistribute: the staging buffer must hold something\n"
            "  staging_bytes: 0\n"
            "  help: RedistributeOptions{.staging_bytes = 64 << 20}");
}

TEST_F(MovingErrorTest, NoStagingBufferForBoxes) {
  EXPECT_EQ(value_error([&] {
              from_boxes({{parse_box("[0:4]"), torch::ones({4})}}, {4}, init_device_mesh("cpu", {1}), {Shard(0)},
                         torch::kFloat, {.staging_bytes = 0});
            }),
            "from_boxes: 1 of 1 ranks failed\n"
            "  rank 0: from_boxes: the staging buffer must hold something\n"
            "      staging_bytes: 0\n"
            "      help: BoxesOptions{.staging_bytes = 64 << 20}\n"
            "  help: mend what these ranks say; no rank went on");
}

TEST_F(MovingErrorTest, MeshesOfTwoWorlds) {
  const Tensor x = rows(mesh);
  const World elsewhere = fake_world(1, 2);
  const WorldScope there(elsewhere);
  const DeviceMesh other = init_device_mesh("cpu", {2});
  EXPECT_EQ(value_error([&] { redistribute(x, other, {Shard(0)}); }),
            "redistribute: the two meshes must be of one world and one kind of device\n"
            "  from: [tp=4] of cpu\n"
            "  to: [2] of cpu\n"
            "  help: tensor.to(device) on a mesh of that device first");
}

TEST_F(MovingErrorTest, ATargetMeshWithRanksThatAreNotThere) {
  EXPECT_EQ(value_error([&] { redistribute(rows(mesh), DeviceMesh("cpu", parse_mesh("[a=5]")), {Shard(0)}); }),
            "init_device_mesh: the mesh is larger than the world\n"
            "  mesh: [a=5] needs rank 4\n"
            "  world: 4 ranks\n"
            "  help: start more ranks: sherd run -n 5 -- ./program, or sherd::spawn(5, fn)");
}

TEST(MovingErrorsOnEveryRank, BoxesThatOverlapOrLeaveAHole) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Box box = parse_box(world.rank() == 0 ? "[0:3]" : "[2:4]");
    from_boxes({{box, torch::ones({box.size[0]})}}, {4}, mesh, {Shard(0)}, torch::kFloat);
  });
  EXPECT_THAT(texts, Each(std::string("from_boxes: boxes overlap\n"
                                      "  box 0: [0:3]\n"
                                      "  box 1: [2:4]\n"
                                      "  both hold: [2:3]\n"
                                      "  help: make box 1 Box{{3}, {1}}")));
  const auto holes = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    std::vector<BoxTensor> boxes;
    if (world.rank() == 1) boxes.push_back({parse_box("[1:4]"), torch::ones({3})});
    from_boxes(boxes, {4}, mesh, {Shard(0)}, torch::kFloat);
  });
  EXPECT_THAT(holes, Each(std::string("from_boxes: boxes leave a hole\n"
                                      "  hole: [0:1]\n"
                                      "  shape: [4]\n"
                                      "  boxes: 1\n"
                                      "  help: add Box{{0}, {1}}")));
}

TEST(MovingErrorsOnEveryRank, ABoxOutsideTheTensor) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    read_boxes(rows(mesh), {parse_box(world.rank() == 1 ? "[2:5, 0:6]" : "[0:1, 0:1]")});
  });
  EXPECT_THAT(texts, Each(std::string("read_boxes: 1 of 2 ranks failed\n"
                                      "  rank 1: read_boxes: a box is not inside the tensor\n"
                                      "      box: [2:5, 0:6]\n"
                                      "      tensor: [4, 6]\n"
                                      "      help: boxes inside [0:4, 0:6]\n"
                                      "  help: mend what these ranks say; no rank went on")));
}

TEST(MovingErrorsOnEveryRank, ATensorThatDoesNotFitItsBox) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1});
    from_boxes({{parse_box("[0:3]"), torch::ones({2})}}, {3}, mesh, {Shard(0)}, torch::kFloat);
  });
  EXPECT_THAT(texts, Each(::testing::HasSubstr("from_boxes: a tensor does not fit its box\n")));
}

TEST(MovingErrorsOnEveryRank, BoxesOfDifferentTensors) {
  struct Meant {
    Dims shape;
    Placement placement;
    c10::ScalarType dtype;
  };
  const auto errors = [](const Meant& first, const Meant& second) {
    return errors_of_ranks(2, [&](World& world) {
      const DeviceMesh mesh = init_device_mesh("cpu", {2});
      const Meant& mine = world.rank() == 0 ? first : second;
      std::vector<BoxTensor> boxes;
      if (world.rank() == 0) {
        const Box whole{Dims(mine.shape.size(), 0), mine.shape};
        boxes.push_back({whole, torch::ones(mine.shape, mine.dtype)});
      }
      from_boxes(boxes, mine.shape, mesh, {mine.placement}, mine.dtype);
    });
  };
  const auto expect = [](const std::vector<std::string>& texts, const std::string& tensors) {
    EXPECT_THAT(texts, Each("from_boxes: the ranks mean different tensors\n" + tensors +
                            "  help: call from_boxes with the same shape, placements and dtype on every rank"));
  };
  const Meant usual{{4, 6}, Shard(0), torch::kFloat};
  expect(errors(usual, {{4, 8}, Shard(0), torch::kFloat}),
         "  rank 0: f32[4@0, 6] on [2]\n"
         "  rank 1: f32[4@0, 8] on [2]\n");
  expect(errors(usual, {{4, 6}, Shard(1), torch::kFloat}),
         "  rank 0: f32[4@0, 6] on [2]\n"
         "  rank 1: f32[4, 6@0] on [2]\n");
  expect(errors(usual, {{4, 6}, Shard(0), torch::kDouble}),
         "  rank 0: f32[4@0, 6] on [2]\n"
         "  rank 1: f64[4@0, 6] on [2]\n");
}

// Of equal size on every rank: the elements would be taken for each other's.
TEST(MovingErrorsOnEveryRank, BoxesOutOfDifferentTensors) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    const auto texts = errors_of_ranks(2,
                                       [](World& world) {
                                         const DeviceMesh mesh = init_device_mesh("cpu", {2});
                                         const Tensor x =
                                             distribute_tensor(torch::ones({4, 4, 4}), mesh, {Shard(world.rank())},
                                                               {.source = std::nullopt});
                                         read_boxes(x, {parse_box("[0:4, 0:4, 0:4]")});
                                       },
                                       {.backend = backend});
    EXPECT_THAT(texts, Each(std::string("read_boxes: the ranks mean different tensors\n"
                                        "  rank 0: f32[4@0, 4, 4] on [2]\n"
                                        "  rank 1: f32[4, 4@0, 4] on [2]\n"
                                        "  help: call read_boxes with the same shape, placements and dtype on every "
                                        "rank")));
  }
}

TEST(MovingErrorsOnEveryRank, TensorsInBoxesToDifferentTargets) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    const auto texts = errors_of_ranks(
        2,
        [](World& world) {
          const DeviceMesh mesh = init_device_mesh("cpu", {2});
          const int64_t first = 2 * world.rank();
          const LocalShardsWrapper local({torch::ones({2, 4, 4})}, {{first, 0, 0}}, {.global_size = Dims{4, 4, 4}});
          const Tensor x = from_local(local, mesh, {Shard(0)}, {.shape = Dims{4, 4, 4}});
          redistribute(x, {Shard(1 + world.rank())});
        },
        {.backend = backend});
    EXPECT_THAT(texts, Each(AllOf(HasSubstr("ranks call different things\n"),
                                  HasSubstr("rank 0: redistribute f32[4@0, 4, 4] on [2] in boxes -> (S(1)) on [2]"),
                                  HasSubstr("rank 1: redistribute f32[4@0, 4, 4] on [2] in boxes -> (S(2)) on [2]"))));
  }
}

// Nobody waits, and everybody hears.
TEST(MovingErrorsOnEveryRank, WhatIsMovedInTheBackgroundAndNotUsed) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    try {
      spawn(2,
            [](World& world) {
              const DeviceMesh mesh = init_device_mesh("cpu", {2});
              const Tensor x = distribute_tensor(torch::ones({4, 4, 4}), mesh, {Shard(0)}, {.source = std::nullopt});
              redistribute_async(x, {Shard(1 + world.rank())});
            },
            {.backend = backend});
      ADD_FAILURE() << "spawn() must rethrow";
    } catch (const c10::DistBackendError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("all_to_all: ranks call different things\n"));
    }
  }
}

// Over threads a collective carries what it is for, so that no rank waits for the other, or takes its elements.
TEST(MovingErrorsOnEveryRank, TensorsOfDifferentShapes) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Dims shape = {4, world.rank() == 0 ? 6 : 8};
    redistribute(rows(mesh, shape), {Shard(1)});
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("ranks call different things\n"),
                                HasSubstr("  rank 0: redistribute f32[4@0, 6] on [2] -> (S(1)) on [2]"),
                                HasSubstr("  rank 1: redistribute f32[4@0, 8] on [2] -> (S(1)) on [2]"))));
}

TEST(MovingErrorsOnEveryRank, RanksWithDifferentPlans) {
  const auto expect = [](const std::vector<std::string>& texts, const std::string& plans) {
    EXPECT_THAT(texts, Each("redistribute: the ranks have different plans\n" + plans +
                            "  help: call redistribute with the same tensor and target on every rank"));
  };
  expect(errors_of_ranks(2,
                         [](World& world) {
                           const DeviceMesh mesh = init_device_mesh("cpu", {2});
                           redistribute(rows(mesh), {world.rank() == 0 ? Placement(Shard(1)) : Placement(Replicate())});
                         },
                         {.check = true}),
         "  rank 0: f32[4@0, 6] on [2] -> (S(1)) on [2] by exchange@0 24 B\n"
         "  rank 1: f32[4@0, 6] on [2] -> (R) on [2] by exchange@0 48 B\n");
  expect(errors_of_ranks(2,
                         [](World& world) {
                           const DeviceMesh mesh = init_device_mesh("cpu", {2});
                           const DeviceMesh one("cpu", parse_mesh(world.rank() == 0 ? "[1]{0}" : "[1]{1}"));
                           redistribute(rows(mesh), one, {Replicate()});
                         }),
         "  rank 0: f32[4@0, 6] on [2] -> (R) on [1] by exchange to [1] 48 B\n"
         "  rank 1: f32[4@0, 6] on [2] -> (R) on [1]{1} by exchange to [1]{1} 48 B\n");
}

// Of equal size on every rank, so that nothing but the plan tells them apart.
TEST(MovingErrorsOnEveryRank, RanksWithDifferentPlansWhoseTensorsFit) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    const auto cubes = [](const DeviceMesh& mesh) {
      return distribute_tensor(torch::ones({4, 4, 4}), mesh, {Shard(0)}, {.source = std::nullopt});
    };
    const auto one = errors_of_ranks(2,
                                     [&](World& world) {
                                       const DeviceMesh mesh = init_device_mesh("cpu", {2});
                                       redistribute(cubes(mesh), {Shard(1 + world.rank())});
                                     },
                                     {.backend = backend});
    EXPECT_THAT(one,
                Each(std::string("all_to_all: ranks call different things\n"
                                 "  rank 0: redistribute f32[4@0, 4, 4] on [2] -> (S(1)) on [2] by exchange@0 64 B: "
                                 "all_to_all f32 blocks of [16, 16]\n"
                                 "  rank 1: redistribute f32[4@0, 4, 4] on [2] -> (S(2)) on [2] by exchange@0 64 B: "
                                 "all_to_all f32 blocks of [16, 16]\n"
                                 "  help: every rank of a group makes the same calls in the same order")));
    const auto many = errors_of_ranks(2,
                                      [&](World& world) {
                                        const DeviceMesh mesh = init_device_mesh("cpu", {2});
                                        const Placements second = {Shard(1 + world.rank())};
                                        redistribute({cubes(mesh), cubes(mesh)}, {{Shard(1)}, second});
                                      },
                                      {.backend = backend});
    EXPECT_THAT(many, Each(::testing::HasSubstr("all_to_all: ranks call different things\n")));
  }
}

}  // namespace
}  // namespace sherd::testing
