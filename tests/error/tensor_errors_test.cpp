// Every error of DTensors, whole: what a user reads when tensors, operators or rules are used wrongly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string not_implemented(const std::function<void()>& f) { return error_text<c10::NotImplementedError>(f); }

// A mesh of a pretended world of 4 ranks in which the tests below stand at rank 0. Errors that follow from shapes and
// placements need no one to talk to.
class TensorErrorTest : public ::testing::Test {
 protected:
  World world = fake_world(0, 4);
  WorldScope scope{world};
  DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});

  Tensor distributed(at::IntArrayRef shape, Placements placements, const DeviceMesh& on) {
    return distribute_tensor(torch::ones(shape), on, std::move(placements), {.source = std::nullopt});
  }
  Tensor distributed(at::IntArrayRef shape, Placements placements) {
    return distributed(shape, std::move(placements), mesh);
  }
};

TEST_F(TensorErrorTest, WrongNumberOfPlacements) {
  const auto text = [](const std::string& operation, const std::string& call) {
    return operation +
           ": 1 placement for a mesh of 2 axes\n"
           "  placements: (S(0))\n"
           "  mesh: [dp=2, tp=2]\n"
           "  help: " +
           call + "{Shard(0), Replicate()})";
  };
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({4, 6}), mesh, {Shard(0)});
            }),
            text("distribute_tensor", "distribute_tensor(x, mesh, "));
  EXPECT_EQ(value_error([&] {
              redistribute(distributed({4, 6}, {Shard(0), Replicate()}), {Shard(0)});
            }),
            text("redistribute", "redistribute(x, "));
  EXPECT_EQ(value_error([&] {
              from_local(torch::ones({4, 6}), mesh, {Shard(0)});
            }),
            text("from_local", "from_local(x, mesh, "));
  EXPECT_EQ(value_error([&] {
              zeros({4, 6}, mesh, {Shard(0), Shard(1), Replicate()});
            }),
            "zeros: 3 placements for a mesh of 2 axes\n"
            "  placements: (S(0), S(1), R)\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: zeros(..., mesh, {Shard(0), Shard(1)})");
}

TEST_F(TensorErrorTest, ADimThatIsNotThere) {
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({4, 6}), mesh, {Shard(2), Replicate()});
            }),
            "distribute_tensor: dim 2 is out of range for a tensor of 2 dims\n"
            "  placement: S(2) on axis dp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  shape: [4, 6]\n"
            "  help: distribute_tensor(x, mesh, {Shard(1), Replicate()})");
  EXPECT_EQ(value_error([&] {
              redistribute(distributed({4, 6}, {Shard(0), Replicate()}), {Replicate(), Shard(-3)});
            }),
            "redistribute: dim -3 is out of range for a tensor of 2 dims\n"
            "  placement: S(-3) on axis tp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  shape: [4, 6]\n"
            "  help: redistribute(x, {Replicate(), Shard(0)})");
  EXPECT_EQ(value_error([&] {
              from_local(torch::ones({4}), mesh, {Replicate(), Shard(1)});
            }),
            "from_local: dim 1 is out of range for a tensor of 1 dim\n"
            "  placement: S(1) on axis tp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  shape: [4]\n"
            "  help: from_local(x, mesh, {Replicate(), Shard(0)})");
}

TEST_F(TensorErrorTest, AShardedScalar) {
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({}), mesh, {Shard(0), Replicate()});
            }),
            "distribute_tensor: a scalar cannot be sharded\n"
            "  placement: S(0) on axis dp\n"
            "  mesh: [dp=2, tp=2]\n"
            "  shape: []\n"
            "  help: distribute_tensor(x, mesh, {Replicate(), Replicate()})");
}

TEST_F(TensorErrorTest, NotDistributed) {
  const auto text = [](const std::string& operation, const std::string& tensor) {
    return operation +
           ": the tensor is not distributed\n"
           "  tensor: " +
           tensor +
           "\n"
           "  help: sherd::distribute_tensor(tensor, mesh, {sherd::Shard(0)})";
  };
  const Tensor plain = torch::ones({4, 6});
  EXPECT_EQ(value_error([&] { to_local(plain); }), text("to_local", "f32[4, 6]"));
  EXPECT_EQ(value_error([&] { full_tensor(plain); }), text("full_tensor", "f32[4, 6]"));
  EXPECT_EQ(value_error([&] { redistribute(plain, {Shard(0), Replicate()}); }), text("redistribute", "f32[4, 6]"));
  EXPECT_EQ(value_error([&] { placements_of(plain); }), text("placements_of", "f32[4, 6]"));
  EXPECT_EQ(value_error([&] { layout_of(plain); }), text("layout_of", "f32[4, 6]"));
  EXPECT_EQ(value_error([&] { mesh_of(Tensor()); }), text("mesh_of", "undefined"));
}

TEST_F(TensorErrorTest, DistributedAlready) {
  const Tensor x = distributed({4, 6}, {Shard(0), Replicate()});
  EXPECT_EQ(value_error([&] {
              distribute_tensor(x, mesh, {Shard(1), Replicate()});
            }),
            "distribute_tensor: the tensor is distributed already, otherwise\n"
            "  it is: f32[4@dp, 6] on [dp=2, tp=2]\n"
            "  asked: (S(1), R) on [dp=2, tp=2]\n"
            "  help: sherd::redistribute(tensor, placements)");
  EXPECT_EQ(value_error([&] {
              from_local(x, mesh, {Shard(0), Replicate()});
            }),
            "from_local: the tensor is distributed already\n"
            "  tensor: f32[4@dp, 6] on [dp=2, tp=2]\n"
            "  help: sherd::redistribute(tensor, placements)");
}

TEST_F(TensorErrorTest, ATensorWithHistoryIsNotALeaf) {
  const Tensor x = torch::ones({4, 6}).requires_grad_();
  EXPECT_EQ(value_error([&] {
              distribute_tensor(x * 2, mesh, {Shard(0), Replicate()});
            }),
            "distribute_tensor: the tensor is not a leaf: its history would be lost\n"
            "  tensor: f32[4, 6]\n"
            "  help: distribute the leaf, or use sherd::from_local, which is differentiable");
}

TEST_F(TensorErrorTest, NothingBecomesPartial) {
  const Tensor x = distributed({4, 6}, {Shard(0), Replicate()});
  EXPECT_EQ(value_error([&] {
              redistribute(x, {Shard(0), Partial()});
            }),
            "redistribute: a tensor cannot be made Partial: its parts are not defined\n"
            "  from: (S(0), R)\n"
            "  to: (S(0), P(sum))\n"
            "  help: sherd::from_local(part, mesh, {sherd::Partial()}) where the parts are known");
}

TEST_F(TensorErrorTest, KindsOfTensorsThatCannotBeDistributed) {
  const auto expect = [&](const Tensor& tensor, const std::string& text) {
    const Placements placements = {Replicate(), Replicate()};
    EXPECT_EQ(not_implemented([&] { distribute_tensor(tensor, mesh, placements); }), "distribute_tensor: " + text);
    EXPECT_EQ(not_implemented([&] { from_local(tensor, mesh, placements); }), "from_local: " + text);
  };
  expect(torch::eye(4).to_sparse(),
         "sparse tensors cannot be distributed\n"
         "  tensor: float, layout Sparse\n"
         "  help: tensor.to_dense()");
  expect(torch::eye(4).to_sparse_csr(),
         "sparse tensors cannot be distributed\n"
         "  tensor: float, layout SparseCsr\n"
         "  help: tensor.to_dense()");
  expect(torch::quantize_per_tensor(torch::ones({4}), 0.1, 0, torch::kQInt8),
         "quantized tensors cannot be distributed\n"
         "  tensor: c10::qint8, layout Strided\n"
         "  help: tensor.dequantize()");
  expect(at::_nested_tensor_from_tensor_list({torch::ones({2}), torch::ones({3})}),
         "nested tensors cannot be distributed\n"
         "  tensor: float, layout Strided\n"
         "  help: tensor.to_padded_tensor(0)");
  expect(Tensor(),
         "undefined tensors cannot be distributed\n"
         "  help: pass a tensor that was made: torch::zeros({4, 6})");
}

TEST_F(TensorErrorTest, ASourceRankThatCannotBe) {
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({4}), mesh, {Shard(0), Replicate()}, {.source = -1});
            }),
            "distribute_tensor: there is no such source\n"
            "  source: -1\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: DistributeOptions{.source = 0}: a place along each axis, from 0");
  EXPECT_EQ(value_error([&] {
              distribute_tensor(torch::ones({4}), mesh, {Shard(0), Replicate()}, {.source = 2});
            }),
            "distribute_tensor: there is no such source\n"
            "  source: 2\n"
            "  mesh: [dp=2, tp=2]\n"
            "  help: DistributeOptions{.source = 0}: a place along each axis, from 0");
}

TEST_F(TensorErrorTest, LocalTensorsThatDoNotFit) {
  EXPECT_EQ(value_error([&] {
              from_local(torch::ones({3, 6}), mesh, {Shard(0), Replicate()}, {.shape = Dims{4, 6}});
            }),
            "from_local: the local tensor does not fit the shape\n"
            "  local: [3, 6] on rank 0\n"
            "  shape: [4, 6] (S(0), R) on [dp=2, tp=2]\n"
            "  expected: [2, 6]\n"
            "  help: leave the shape away: it is found from the parts");
  EXPECT_EQ(value_error([&] {
              from_local(torch::ones({3, 6}), mesh, {Shard(0), Replicate()}, {.stride = Dims{6, 1}});
            }),
            "from_local: strides need a shape\n"
            "  stride: [6, 1]\n"
            "  help: FromLocalOptions{.shape = {...}, .stride = {...}}");
}

TEST_F(TensorErrorTest, OperandsOnTwoMeshes) {
  const DeviceMesh line = init_device_mesh("cpu", {4}, {"x"});
  const Tensor x = distributed({64, 32}, {Shard(0), Replicate()});
  const Tensor y = distributed({32, 16}, {Shard(1)}, line);
  EXPECT_EQ(
      value_error([&] { x.mm(y); }),
      "mm: operands live on different meshes\n"
      "  one: f32[64@dp, 32] on [dp=2, tp=2]\n"
      "  other: f32[32, 16@x] on [x=4]\n"
      "  help: sherd::distribute_tensor(sherd::full_tensor(other), sherd::mesh_of(one), {Replicate(), Replicate()})");
}

TEST_F(TensorErrorTest, DataPointers) {
  const Tensor x = distributed({4, 6}, {Shard(0), Replicate()});
  EXPECT_EQ(error_text<c10::Error>([&] { x.data_ptr<float>(); }),
            "data_ptr: this tensor is distributed, its data is in pieces on several ranks\n"
            "  help: sherd::to_local(tensor) for this rank's part, sherd::full_tensor(tensor) for all of it");
  EXPECT_EQ(error_text<c10::Error>([&] { x.mutable_data_ptr(); }),
            "data_ptr: this tensor is distributed, its data is in pieces on several ranks\n"
            "  help: sherd::to_local(tensor) for this rank's part, sherd::full_tensor(tensor) for all of it");
}

TEST_F(TensorErrorTest, OutIsOnAnotherMesh) {
  const Tensor x = distributed({4, 6}, {Shard(0), Replicate()});
  Tensor out = distributed({4, 6}, {Shard(0)}, init_device_mesh("cpu", {4}, {"x"}));
  EXPECT_EQ(value_error([&] { torch::add_out(out, x, x); }),
            "add: out= lives on another mesh than the inputs\n"
            "  out: f32[4@x, 6] on [x=4]\n"
            "  inputs: on [dp=2, tp=2]\n"
            "  help: leave out= away, or pass a DTensor on the same mesh");
}

TEST_F(TensorErrorTest, ExplicitRedistributionRefusesToMoveData) {
  const Tensor x = distributed({64, 32}, {Replicate(), Shard(0)});
  const Tensor y = distributed({32, 8}, {Replicate(), Shard(0)});
  const ExplicitRedistribution scope_of_error;
  EXPECT_EQ(value_error([&] { x.mm(y); }),
            "mm: would move data by itself\n"
            "  operand 1: (R, S(0)) -> (R, R): exchange@tp 512 B\n"
            "  help: operand1 = sherd::redistribute(operand1, {Replicate(), Replicate()}), or leave the "
            "ExplicitRedistribution scope");
  EXPECT_EQ(value_error([&] { torch::erfinv(x.cumsum(0)); }),
            "cumsum: would move data by itself\n"
            "  operand: rows of dim 0 are exchanged along tp\n"
            "  help: sherd::redistribute(operand, placements) with dim 0 whole first, or leave the "
            "ExplicitRedistribution scope");
}

TEST_F(TensorErrorTest, AnInPlaceOperatorThatCannotKeepItsPlacements) {
  const Tensor part = from_local(torch::ones({4, 6}), mesh, {Replicate(), Partial()}, {.shape = Dims{4, 6}});
  const ExplicitRedistribution scope_of_error;
  EXPECT_EQ(value_error([&] { part.relu_(); }),
            "relu_: would move data by itself\n"
            "  operand 0: (R, P(sum)) -> (R, R): all_reduce@tp 96 B\n"
            "  and back: an in-place operator leaves its tensor where it was\n"
            "  help: operand0 = sherd::redistribute(operand0, {Replicate(), Replicate()}), or leave the "
            "ExplicitRedistribution scope");
  const Tensor rows = distributed({4, 6}, {Replicate(), Shard(0)});
  EXPECT_EQ(value_error([&] { rows.cumsum_(0); }),
            "cumsum_: would move data by itself\n"
            "  operand 0: (R, S(0)) -> (R, S(1)): exchange@tp 24 B\n"
            "  and back: an in-place operator leaves its tensor where it was\n"
            "  help: operand0 = sherd::redistribute(operand0, {Replicate(), Shard(1)}), or leave the "
            "ExplicitRedistribution scope");
}

TEST_F(TensorErrorTest, StrictModeWantsARule) {
  const Tensor x = distributed({4, 4}, {Shard(0), Replicate()});
  set_strict(true);
  EXPECT_EQ(not_implemented([&] { torch::unique_dim(x, 0); }),
            "unique_dim: no rule says how this operator is sharded\n"
            "  operator: aten::unique_dim\n"
            "  it would gather: 32 B\n"
            "  help: sherd::register_rule(\"aten::unique_dim\", rule), see docs/rules.md, or sherd::set_strict(false)");
  set_strict(false);
}

TEST_F(TensorErrorTest, AnotherDevice) {
  const Tensor x = distributed({4, 6}, {Shard(0), Replicate()});
  EXPECT_EQ(not_implemented([&] { x.to(torch::Device("cuda:0")); }),
            "_to_copy: a distributed tensor stays on the devices of its mesh\n"
            "  mesh: [dp=2, tp=2] on cpu\n"
            "  asked: cuda:0\n"
            "  help: sherd::full_tensor(tensor).to(device), or distribute it over a mesh of that device");
}

TEST_F(TensorErrorTest, ADimThatIsNotThereInAnOperator) {
  const Tensor x = distributed({4, 6}, {Shard(0), Replicate()});
  EXPECT_EQ(error_text<c10::IndexError>([&] { x.transpose(0, 9); }),
            "Dimension out of range (expected to be in range of [-2, 1], but got 9)");
  EXPECT_EQ(error_text<c10::IndexError>([&] { x.select(9, 0); }),
            "Dimension out of range (expected to be in range of [-2, 1], but got 9)");
  EXPECT_EQ(error_text<c10::IndexError>([&] { x.sum(9); }),
            "Dimension out of range (expected to be in range of [-2, 1], but got 9)");
  EXPECT_EQ(error_text<c10::Error>([&] { x.mm(x); }), "mat1 and mat2 shapes cannot be multiplied (4x6 and 4x6)");
}

TEST_F(TensorErrorTest, ResultsThatAreNotDense) {
  EXPECT_EQ(not_implemented([&] {
              distributed({4, 6}, {Replicate(), Replicate()}).to_sparse();
            }),
            "_to_sparse: the result is not a strided tensor\n"
            "  layout: Sparse\n"
            "  help: sherd::full_tensor(tensor) first");
}

TEST_F(TensorErrorTest, AnOperatorThatIsNotTorchs) {
  torch::Library prims(torch::Library::FRAGMENT, "prims", std::nullopt, __FILE__, __LINE__);
  prims.def("sherd_twice(Tensor x) -> Tensor");
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("prims::sherd_twice", "");
  EXPECT_EQ(not_implemented([&] {
              const at::NoGradGuard no_grad;
              torch::jit::Stack stack{distributed({4, 6}, {Shard(0), Replicate()})};
              op.callBoxed(stack);
            }),
            "prims::sherd_twice: not an operator that DTensors go through\n"
            "  operator: prims::sherd_twice\n"
            "  help: sherd::to_local(tensor) or sherd::full_tensor(tensor) first");
}

TEST_F(TensorErrorTest, BoxesOfASum) {
  EXPECT_EQ(value_error([&] {
              from_boxes({}, {4, 6}, mesh, {Shard(0), Partial()}, torch::kFloat);
            }),
            "from_boxes: boxes hold values, not parts of a sum\n"
            "  placements: (S(0), P(sum))\n"
            "  help: Replicate() or Shard(0) instead of Partial()");
}

TEST_F(TensorErrorTest, ARowThatWasCopiedIsNotKept) {
  EXPECT_EQ(errors_of_ranks(2,
                            [](World&) {
                              const DeviceMesh pair = init_device_mesh("cpu", {2}, {"a"});
                              checkpointable(distribute_tensor(torch::ones({4, 6}), pair, {Shard(0)}).select(0, 1));
                            }),
            std::vector<std::string>(2,
                                     "checkpointable: the tensor is a view that had to be copied\n"
                                     "  tensor: f32[6@a] on [a=2]\n"
                                     "  help: the tensor that it is a view of, or tensor.clone()"));
}

TEST_F(TensorErrorTest, ListsOfLocalMap) {
  auto added = local_map([](const Tensor& x, const Tensor& y) { return x + y; }, mesh, {std::nullopt}, {std::nullopt});
  EXPECT_EQ(value_error([&] { added(torch::ones({2}), torch::ones({2})); }),
            "local_map: 1 entry of placements for 2 arguments\n"
            "  list: in\n"
            "  help: one entry per argument, std::nullopt for what is no DTensor");
}

TEST_F(TensorErrorTest, NumbersThatCannotBeDrawn) {
  const Tensor x = zeros({4}, mesh, {Shard(0), Replicate()}, torch::kByte);
  EXPECT_EQ(value_error([&] { x.random_(0, 300); }),
            "random_: the dtype does not hold all of the range\n"
            "  given: [0, 299]\n"
            "  help: numbers between 0 and 255");
  EXPECT_EQ(value_error([&] {
              randperm(-1, mesh, {Replicate(), Replicate()});
            }),
            "randperm: a negative number of rows\n"
            "  n: -1\n"
            "  help: n >= 0");
  EXPECT_EQ(value_error([&] {
              torch::multinomial(distributed({2, 2, 2}, {Shard(0), Replicate()}), 1);
            }),
            "multinomial: the weights are neither one row nor several\n"
            "  given: 3 dims\n"
            "  help: weights.view({-1, n})");
  EXPECT_EQ(value_error([&] { torch::multinomial(x, 1); }),
            "multinomial: the weights are no floats\n"
            "  given: Byte\n"
            "  help: weights.to(torch::kFloat)");
}

TEST(RankErrorTest, PartsThatAreNoStridedShard) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    const DeviceMesh pair = init_device_mesh("cpu", {2}, {"a"});
    from_local(torch::ones({world.rank() == 0 ? 1 : 3, 2}), pair, {StridedShard(0, 2)});
  });
  EXPECT_THAT(texts, Each(std::string("from_local: the parts do not fit a strided shard\n"
                                      "  sizes along the axis: [1, 3]\n"
                                      "  a tensor of 4 rows has: [2, 2]\n"
                                      "  help: pass parts of these sizes, or sherd::Ragged")));
}

TEST(RuleErrorTest, BadTexts) {
  struct Bad {
    const char* rule;
    const char* problem;
    int at;
  };
  const Bad all[] = {
      {"i k, k j -> i j", "a factor on one side only needs a clause", 2},
      {"i -> i j", "a factor of outputs alone must be whole", 7},
      {"i i -> i", "a factor stands twice in one operand", 3},
      {"i k", "expected '->' between inputs and outputs", 3},
      {"* * -> *", "one '*' per operand", 3},
      {"i -> i | reduce", "the clause needs a factor", 15},
      {"i -> i | whole q", "a clause names a factor that no operand has", 16},
      {"i -> i | linear 3", "linear names an input that the rule does not have", 17},
      {"i -> i | frobnicate i",
       "a clause is reduce, whole, mask, same, linear, shape, size, empty, when, or factor=argument", 20},
      {"i 2 -> i", "the only number that stands for a dim is 1", 3},
      {"i k -> i | reduce(median) k", "a reduction is sum, avg, min, max, product, band or bor", 24},
      {"i -> i | when", "when needs an argument of the operator", 13},
      {"+ -> i", "a factor of outputs alone must be whole", 5},
  };
  for (const Bad& bad : all) {
    EXPECT_EQ(value_error([&] { register_rule("mylib::op", bad.rule); }),
              std::string("register_rule: ") + bad.problem +
                  "\n"
                  "  operator: mylib::op\n"
                  "  rule: \"" +
                  bad.rule +
                  "\"\n"
                  "  at: character " +
                  std::to_string(bad.at) +
                  "\n"
                  "  help: \"i k, k j -> i j | reduce k, linear 0 1\"");
  }
}

TEST(RuleErrorTest, WithoutANamespace) {
  EXPECT_EQ(value_error([] { register_rule("ffn", "b d, d f -> b f | reduce d"); }),
            "register_rule: an operator's name has a namespace\n"
            "  given: \"ffn\"\n"
            "  help: sherd::register_rule(\"mylib::ffn\", \"i k, k j -> i j | reduce k\")");
}

// Rules that do not describe their operator.
Tensor first_rows(const Tensor& x) { return x.slice(0, 0, 1).clone(); }
Tensor doubled(const Tensor& x) { return torch::cat({x, x}, 1); }

TORCH_LIBRARY(sherd_error_test, library) {
  library.def("first_rows(Tensor x) -> Tensor");
  library.def("doubled(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(sherd_error_test, CPU, library) {
  library.impl("first_rows", first_rows);
  library.impl("doubled", doubled);
}

Tensor call(const char* name, const Tensor& x) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Tensor(const Tensor&)>().call(x);
}

TEST_F(TensorErrorTest, ARuleThatDoesNotDescribeItsOperator) {
  register_rule("sherd_error_test::first_rows", "i j -> i j");
  register_rule("sherd_error_test::doubled", "i j -> i j");
  EXPECT_EQ(value_error([&] {
              call("sherd_error_test::first_rows", distributed({4, 6}, {Shard(0), Replicate()}));
            }),
            "sherd_error_test::first_rows: its rule does not describe it\n"
            "  rule: i j -> i j\n"
            "  result: [1, 6]\n"
            "  rule says: [2, 6] for placements (S(0), R)\n"
            "  help: sherd::register_rule(\"sherd_error_test::first_rows\", \"...\")");
  EXPECT_EQ(value_error([&] {
              call("sherd_error_test::doubled", distributed({4, 6}, {Replicate(), Shard(1)}));
            }),
            "sherd_error_test::doubled: its rule does not describe it\n"
            "  rule: i j -> i j\n"
            "  result: [4, 6]\n"
            "  rule says: [4, 3] for placements (R, S(1))\n"
            "  help: sherd::register_rule(\"sherd_error_test::doubled\", \"...\")");
}

// Rank 1 looks up a row that the table does not have; its indices are its own. The others hear of it where they next
// wait for it.
TEST(RankErrorTest, ALocalFailureReachesTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors(3);
  EXPECT_ANY_THROW(spawn(3, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"dp"});
    const Tensor table = distribute_tensor(torch::ones({5, 2}), mesh, {Replicate()});
    const Tensor mine = torch::full({2}, world.rank() == 1 ? 7 : 1, torch::kLong);
    const Tensor rows = from_local(mine, mesh, {Shard(0)}, {.shape = Dims{6}});
    try {
      full_tensor(torch::embedding(table, rows));
    } catch (const c10::Error& error) {
      errors[static_cast<size_t>(world.rank())] = error.what_without_backtrace();
      throw;
    }
  }));
  const std::string others =
      "all_gather: rank 1 failed\n"
      "  rank 1: index out of range in self\n"
      "  help: mend what rank 1 says; this rank stopped because of it";
  EXPECT_THAT(errors, ElementsAre(others, "index out of range in self", others));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// The part of rank 0, the only one that is not empty, takes a PiB once it is more than a view of one number.
TEST(RankErrorTest, ARankWithoutMemoryReachesTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors(3);
  EXPECT_ANY_THROW(spawn(3, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"dp"});
    const int64_t width = int64_t{1} << 48;
    const Tensor mine = torch::zeros({world.rank() == 0 ? 1 : 0, 1}).expand({-1, width});
    const Tensor wide = from_local(mine, mesh, {Shard(0)}, {.shape = Dims{1, width}});
    const Tensor other = distribute_tensor(torch::ones({3}), mesh, {Shard(0)});
    try {
      const Tensor more = wide + 1;
      full_tensor(other);
    } catch (const std::exception& error) {
      errors[static_cast<size_t>(world.rank())] = error.what();
      throw;
    }
  }));
  EXPECT_THAT(errors[0], HasSubstr("tried to allocate 1125899906842624 bytes"));
  for (const size_t rank : {1, 2}) {
    EXPECT_THAT(errors[rank], StartsWith("all_gather: rank 0 failed\n  rank 0: "));
    EXPECT_THAT(errors[rank], HasSubstr("tried to allocate 1125899906842624 bytes"));
    EXPECT_THAT(errors[rank], HasSubstr("\n  help: mend what rank 0 says; this rank stopped because of it"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(RankErrorTest, PartsThatDoNotFitTogether) {
  EXPECT_THAT(errors_of_ranks(2,
                              [](World& world) {
                                const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
                                from_local(torch::ones({2, 3 + world.rank()}), mesh, {Shard(0)}, {.check = true});
                              }),
              Each("from_local: ranks bring parts that do not fit together\n"
                   "  rank 0: f32[-1, 3]\n"
                   "  rank 1: f32[-1, 4]\n"
                   "  placements: (S(0)) (-1: may differ)\n"
                   "  help: give every rank the same dtype and the same sizes of dims that are not cut"));
}

}  // namespace
}  // namespace sherd::testing
