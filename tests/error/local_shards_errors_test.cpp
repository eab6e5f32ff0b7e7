// Every error of LocalShardsWrappers and of DTensors made of them, whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using ::testing::Each;

Tensor zeros(at::IntArrayRef size, c10::ScalarType dtype = c10::kFloat) { return torch::zeros(size, dtype); }

std::string error_of(const std::vector<Tensor>& shards, const std::vector<Dims>& offsets,
                     const LocalShardsOptions& options = {}) {
  return value_error([&] { LocalShardsWrapper(shards, offsets, options); });
}

TEST(LocalShardsErrorTest, FewerOffsetsThanShards) {
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({4, 1})}, {{0, 0}}),
            "LocalShardsWrapper: there must be one offset for each shard\n"
            "  shards: 2\n"
            "  offsets: 1\n"
            "  help: LocalShardsWrapper({a, b}, {{0, 0}, {0, 2}})");
}

TEST(LocalShardsErrorTest, NoShardsOfAnUnknownTensor) {
  EXPECT_EQ(error_of({}, {}),
            "LocalShardsWrapper: a rank without shards must say of which tensor it has none\n"
            "  shards: 0\n"
            "  help: LocalShardsWrapper({}, {}, {.global_size = {1000, 64}, .dtype = torch::kFloat})");
  EXPECT_EQ(error_of({}, {}, {.global_size = Dims{4, -1}}),
            "LocalShardsWrapper: a size is negative\n"
            "  global_size: [4, -1]\n"
            "  help: sizes >= 0");
}

TEST(LocalShardsErrorTest, ShardsThatCannotBeOne) {
  EXPECT_EQ(error_of({zeros({4}), Tensor()}, {{0}, {4}}),
            "LocalShardsWrapper: shard 1 is undefined\n"
            "  shard: 1\n"
            "  help: a tensor");
  EXPECT_EQ(error_of({LocalShardsWrapper({zeros({4})}, {{0}})}, {{0}}),
            "LocalShardsWrapper: shard 0 is no plain dense tensor\n"
            "  shard 0: f32[4] on cpu\n"
            "  help: its local tensor, or to_dense()");
  EXPECT_EQ(error_of({torch::ones({4}).requires_grad_() * 2}, {{0}}),
            "LocalShardsWrapper: shard 0 was computed: its history would be lost\n"
            "  shard 0: f32[4] on cpu\n"
            "  help: shard.detach()");
}

TEST(LocalShardsErrorTest, OffsetsThatDoNotFit) {
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({4, 1})}, {{0, 0}, {0}}),
            "LocalShardsWrapper: shard 1 has another number of dims than its offsets\n"
            "  shard 1: [4, 1]\n"
            "  offsets: [0]\n"
            "  help: 2 offsets");
  EXPECT_EQ(error_of({zeros({4, 2})}, {{0, -3}}),
            "LocalShardsWrapper: shard 0 begins before the tensor\n"
            "  shard 0: [4, 2]\n"
            "  offsets: [0, -3]\n"
            "  help: 0 <= offset, offset + size < 2^63");
  EXPECT_EQ(error_of({zeros({4, 2})}, {{0, std::numeric_limits<int64_t>::max()}}),
            "LocalShardsWrapper: shard 0 ends beyond all numbers\n"
            "  shard 0: [4, 2]\n"
            "  offsets: [0, 9223372036854775807]\n"
            "  help: 0 <= offset, offset + size < 2^63");
  EXPECT_EQ(error_of({zeros({4, 2})}, {{0, 8}}, {.global_size = Dims{4, 9}}),
            "LocalShardsWrapper: shard 0 is not inside the tensor\n"
            "  shard 0: [0:4, 8:10]\n"
            "  global_size: [4, 9]\n"
            "  help: offsets in the whole tensor, not in this rank's part");
}

TEST(LocalShardsErrorTest, ShardsThatDiffer) {
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({4})}, {{0, 0}, {0}}),
            "LocalShardsWrapper: shards 0 and 1 have different numbers of dims\n"
            "  shard 0: f32[4, 2] on cpu\n"
            "  shard 1: f32[4] on cpu\n"
            "  help: parts of one tensor");
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({4, 1}), zeros({4, 1}, c10::kDouble)}, {{0, 0}, {0, 2}, {0, 3}}),
            "LocalShardsWrapper: shards 0 and 2 have different dtypes\n"
            "  shard 0: f32[4, 2] on cpu\n"
            "  shard 2: f64[4, 1] on cpu\n"
            "  help: shard.to(dtype)");
  EXPECT_EQ(error_of({zeros({4, 2}), torch::empty({4, 1}, torch::kMeta)}, {{0, 0}, {0, 2}}),
            "LocalShardsWrapper: shards 0 and 1 have different devices\n"
            "  shard 0: f32[4, 2] on cpu\n"
            "  shard 1: f32[4, 1] on meta\n"
            "  help: shard.to(device)");
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({4, 1}).requires_grad_()}, {{0, 0}, {0, 2}}),
            "LocalShardsWrapper: shards 0 and 1 have different requires_grad\n"
            "  shard 0: false\n"
            "  shard 1: true\n"
            "  help: requires_grad_() on the wrapper");
}

TEST(LocalShardsErrorTest, ShardsOfAnotherKindThanAskedFor) {
  EXPECT_EQ(error_of({zeros({4})}, {{0}}, {.dtype = c10::kDouble}),
            "LocalShardsWrapper: the shards have another dtype than asked for\n"
            "  shard 0: f32\n"
            "  asked: f64\n"
            "  help: leave it out: it is the shards'");
  EXPECT_EQ(error_of({zeros({4})}, {{0}}, {.device = c10::Device("cuda:1")}),
            "LocalShardsWrapper: the shards have another device than asked for\n"
            "  shard 0: cpu\n"
            "  asked: cuda:1\n"
            "  help: leave it out: it is the shards'");
}

TEST(LocalShardsErrorTest, ShardsInEachOther) {
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({4, 2}), zeros({4, 2})}, {{0, 0}, {0, 4}, {1, 1}}),
            "LocalShardsWrapper: shards 0 and 2 overlap\n"
            "  shard 0: [0:4, 0:2]\n"
            "  shard 2: [1:5, 1:3]\n"
            "  both hold: [1:4, 1:2]\n"
            "  help: give every element to one shard");
  EXPECT_EQ(error_of({zeros({4, 2}), zeros({0, 2})}, {{0, 0}, {0, 0}}),
            "LocalShardsWrapper: shards 0 and 1 begin at the same place\n"
            "  shard 0: [0:4, 0:2]\n"
            "  shard 1: [0:0, 0:2]\n"
            "  help: leave out the shard without elements");
}

TEST(LocalShardsErrorTest, AnotherTensor) {
  EXPECT_EQ(value_error([] { LocalShardsWrapper(Tensor(zeros({4}))); }),
            "LocalShardsWrapper: not a LocalShardsWrapper\n"
            "  tensor: f32[4]\n"
            "  help: LocalShardsWrapper({tensor}, {{0, 0}}), or sherd::to_local(dtensor)");
}

TEST(LocalShardsErrorTest, ViewsOfAnotherSize) {
  EXPECT_EQ(value_error([] {
              LocalShardsWrapper({zeros({4, 2})}, {{0, 6}}).view({8});
            }),
            "view: a LocalShardsWrapper keeps its size: its offsets have no meaning in another\n"
            "  wrapper: LocalShardsWrapper f32[4, 2] on cpu: [0:4, 6:8]\n"
            "  asked: [8]\n"
            "  help: view the shards themselves: wrapper.local_shards()[i].view(...)");
}

TEST(LocalShardsErrorTest, OperatorsThatNeedMoreThanOneShard) {
  EXPECT_EQ(error_text<c10::NotImplementedError>([] {
              LocalShardsWrapper({zeros({4, 2})}, {{0, 6}}).sum(1);
            }),
            "sum: this operator cannot go piece by piece\n"
            "  tensor: f32[4, 2] in 1 pieces here\n"
            "  help: sherd::from_local(wrapper, mesh, placements), or the shards one by one: wrapper.local_shards()");
  EXPECT_EQ(value_error([] {
              const LocalShardsWrapper x({zeros({4, 2})}, {{0, 6}});
              x + LocalShardsWrapper({zeros({4, 2})}, {{0, 4}});
            }),
            "add: the tensors lie in different pieces\n"
            "  pieces: [0:4, 6:8]\n"
            "  pieces: [0:4, 4:6]\n"
            "  help: make both of the same rectangles");
  EXPECT_EQ(value_error([] {
              Tensor plain = zeros({4, 2});
              at::_foreach_add_({plain}, std::vector<Tensor>{LocalShardsWrapper({zeros({4, 2})}, {{0, 6}})});
            }),
            "_foreach_add_: a tensor that is not in pieces cannot be written from one that is\n"
            "  written: [4, 2]\n"
            "  help: gather the other one first, or bring this one to its pieces");
}

TEST(LocalShardsErrorTest, ShardsThatAreNotHere) {
  const LocalShardsWrapper x({zeros({4, 2}), zeros({4, 1})}, {{0, 0}, {0, 7}});
  const std::string expected =
      "shard: this rank has no shard at these offsets\n"
      "  tensor: \"layers.0.table\"\n"
      "  offsets: [0, 2]\n"
      "  shards here: [0:4, 0:2], [0:4, 7:8]\n"
      "  help: ShardIndex{name, offsets} with offsets of chunk_list()";
  EXPECT_EQ(value_error([&] { x.shard({"layers.0.table", Dims{0, 2}}); }), expected);
  EXPECT_EQ(value_error([&] { checkpointable(x)->shard({"layers.0.table", Dims{0, 2}}); }), expected);
  EXPECT_EQ(value_error([&] {
              x.shard({"table", {}, 5});
            }),
            "shard: which shard is not said\n"
            "  tensor: \"table\"\n"
            "  hint: 5\n"
            "  shards here: [0:4, 0:2], [0:4, 7:8]\n"
            "  help: ShardIndex{name, offsets} with offsets of chunk_list()");
  EXPECT_EQ(value_error([&] { x.write_items("table"); }),
            "checkpointable: the size of the whole tensor is not known\n"
            "  chunks here: [0:4, 0:2], [0:4, 7:8]\n"
            "  help: LocalShardsOptions{.global_size = {...}}, or sherd::from_local(wrapper, ...)");
}

class BoxedErrorTest : public ::testing::Test {
 protected:
  World world = fake_world(0, 2);
  WorldScope scope{world};
  DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
  LocalShardsWrapper x{{zeros({4, 2})}, {{0, 0}}};
};

TEST_F(BoxedErrorTest, WrappersThatAreNoPart) {
  EXPECT_EQ(value_error([&] {
              from_local(x, mesh, {Partial()}, {.shape = Dims{4, 4}});
            }),
            "from_local: shards hold values, not parts of a sum\n"
            "  placements: (P(sum))\n"
            "  help: Shard(dim), or Replicate() on axes whose ranks hold the same shards");
  EXPECT_EQ(value_error([&] {
              from_local(x, mesh, {Shard(1)}, {.shape = Dims{4, 1}});
            }),
            "from_local: a box is not inside the tensor\n"
            "  box: [0:4, 0:2]\n"
            "  tensor: [4, 1]\n"
            "  help: boxes inside [0:4, 0:1]");
  const LocalShardsWrapper sized({zeros({4, 2})}, {{0, 0}}, {.global_size = Dims{4, 6}});
  EXPECT_EQ(value_error([&] {
              from_local(sized, mesh, {Shard(1)}, {.shape = Dims{4, 4}});
            }),
            "from_local: the shards are those of a tensor of another size\n"
            "  shards of: [4, 6]\n"
            "  shape: [4, 4]\n"
            "  help: the wrapper's global_size as the shape");
  EXPECT_EQ(value_error([&] {
              from_local(x, mesh, {Shard(1)}, {.shape = Dims{4, 4}, .grad_placements = Placements{Replicate()}});
            }),
            "from_local: the gradient of a LocalShardsWrapper lies in its shards\n"
            "  grad_placements: (R)\n"
            "  help: leave grad_placements out");
  EXPECT_EQ(value_error([&] { distribute_tensor(x, mesh, {Shard(1)}); }),
            "distribute_tensor: the tensor lies in pieces already\n"
            "  tensor: f32[4, 2]\n"
            "  help: sherd::from_local(wrapper, mesh, placements) or sherd::sharded::to_dtensor(tensor)");
}

TEST_F(BoxedErrorTest, TensorsThatDoNotMeet) {
  const Tensor boxed = from_local(x, mesh, {Shard(1)}, {.shape = Dims{4, 4}});
  EXPECT_EQ(value_error([&] { boxed + x; }),
            "add: a DTensor meets a tensor in pieces\n"
            "  DTensor: f32[4, 4@tp] on [tp=2] in boxes\n"
            "  in pieces: f32[4, 2]\n"
            "  help: sherd::from_local(wrapper, mesh, placements) or sherd::sharded::to_dtensor(tensor)");
  const DeviceMesh other = init_device_mesh("cpu", {1, 2}, {"a", "b"});
  EXPECT_EQ(value_error([&] {
              boxed + sherd::zeros({4, 4}, other, {Shard(0), Shard(1)});
            }),
            "add: operands live on different meshes\n"
            "  one: f32[4, 4@tp] on [tp=2] in boxes\n"
            "  other: f32[4@a, 4@b] on [a=1, b=2]\n"
            "  help: sherd::redistribute(tensor, mesh, placements) of one of them");
  EXPECT_EQ(error_text<c10::NotImplementedError>([&] { boxed.t_(); }),
            "t_: a tensor in boxes keeps its shape\n"
            "  tensor: f32[4, 4@tp] on [tp=2] in boxes\n"
            "  help: the operator without the underscore");
  EXPECT_EQ(value_error([&] { layout_of(boxed); }),
            "layout_of: the tensor lies in boxes that its ranks chose\n"
            "  tensor: f32[4, 4@tp] on [tp=2] in boxes\n"
            "  help: sherd::checkpointable(tensor)->chunk_list() for this rank's boxes");
  const ExplicitRedistribution explicitly;
  EXPECT_EQ(value_error([&] { boxed.sum(); }),
            "sum: would move data by itself\n"
            "  operand: f32[4, 4@tp] on [tp=2] in boxes\n"
            "  help: sherd::redistribute(tensor, placements) first, or leave the ExplicitRedistribution scope");
}

TEST_F(BoxedErrorTest, TensorsThatHaveNoValueToKeep) {
  EXPECT_EQ(value_error([&] { checkpointable(from_local(zeros({4}), mesh, {Partial()})); }),
            "checkpointable: a Partial tensor has no value yet that could be kept\n"
            "  tensor: f32[4] P(sum)@tp on [tp=2]\n"
            "  help: sherd::redistribute(tensor, {sherd::Replicate()}) first");
}

// Boxes that do not make up the tensor: the same error on every rank, once data have to move.
std::vector<std::string> errors_of(const std::function<LocalShardsWrapper(int64_t)>& local, const Dims& shape) {
  return errors_of_ranks(2, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = from_local(local(world.rank()), mesh, {Shard(1)}, {.shape = shape});
    x + 1;
    full_tensor(x);
  });
}

TEST(BoxesErrorTest, AHoleBetweenRanks) {
  EXPECT_THAT(errors_of(
                  [](int64_t r) {
                    return LocalShardsWrapper({zeros({4, 2})}, {{0, 3 * r}});
                  },
                  {4, 5}),
              Each("redistribute: boxes leave a hole\n"
                   "  hole: [0:4, 2:3]\n"
                   "  shape: [4, 5]\n"
                   "  boxes: 2\n"
                   "  help: add Box{{0, 2}, {4, 1}}"));
}

TEST(BoxesErrorTest, AnElementOnTwoRanks) {
  EXPECT_THAT(errors_of(
                  [](int64_t r) {
                    return LocalShardsWrapper({zeros({4, 2})}, {{0, r}});
                  },
                  {4, 3}),
              Each("redistribute: boxes overlap\n"
                   "  box 0: [0:4, 0:2]\n"
                   "  box 1: [0:4, 1:3]\n"
                   "  both hold: [0:4, 1:2]\n"
                   "  help: make box 1 Box{{0, 2}, {4, 1}}"));
}

TEST(BoxesErrorTest, RanksOfDifferentDtypes) {
  EXPECT_THAT(errors_of(
                  [](int64_t r) {
                    return LocalShardsWrapper({zeros({4, 2}, r == 0 ? c10::kFloat : c10::kDouble)}, {{0, 2 * r}});
                  },
                  {4, 4}),
              Each("redistribute: the ranks' shards have different dtypes\n"
                   "  rank 0: f32\n"
                   "  rank 1: f64\n"
                   "  help: shards of one dtype; LocalShardsOptions{.dtype = ...} where a rank has none"));
}

TEST(BoxesErrorTest, RanksThatHoldPartsOfDifferentTensors) {
  EXPECT_THAT(
      errors_of_ranks(2,
                      [&](World& world) {
                        const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
                        const bool first = world.rank() == 0;
                        const Tensor shard = first ? zeros({4, 2}) : zeros({4});
                        from_local(LocalShardsWrapper({shard}, {first ? Dims{0, 0} : Dims{0}}), mesh, {Shard(0)});
                      }),
      Each("from_local: the ranks hold shards of different tensors\n"
           "  rank 0: f32 [0:4, 0:2]\n"
           "  rank 1: f32 [0:4]\n"
           "  help: one dtype, one number of dims and one global_size on all ranks"));
}

TEST(BoxesErrorTest, CopiesThatDiffer) {
  EXPECT_THAT(errors_of_ranks(2,
                              [&](World& world) {
                                const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
                                const int64_t cut = 1 + world.rank();
                                const LocalShardsWrapper local({zeros({cut}), zeros({4 - cut})}, {{0}, {cut}});
                                from_local(local, mesh, {Replicate()}, {.check = true, .shape = Dims{4}});
                              }),
              Each("from_local: ranks of a replicated axis hold different shards\n"
                   "  rank 0: [0:1], [1:4]\n"
                   "  rank 1: [0:2], [2:4]\n"
                   "  help: the same shards in the same order along the axis"));
}

}  // namespace
}  // namespace sherd::testing
