// Functions of local tensors inside programs on DTensors: values and gradients of one device.

#include "sherd/local_map.h"

#include "error/rank_errors.h"
#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;

// x cut in rows, w whole: the gradient of w is a sum over the ranks.
TEST(LocalMapTest, RowsTimesAWholeMatrix) {
  const Tensor x = numbers({5, 4}).requires_grad_();
  const Tensor w = numbers({4, 3}, 1).requires_grad_();
  const Tensor expected = torch::tanh(x.mm(w));
  expected.pow(2).sum().backward();
  for (const int n : {1, 2, 3, 4}) {
    spawn(n, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {n}, {"dp"});
      const Tensor dx = distribute_tensor(x.detach(), mesh, {Shard(0)}).requires_grad_();
      const Tensor dw = distribute_tensor(w.detach(), mesh, {Replicate()}).requires_grad_();
      auto f = local_map(
          [](const Tensor& rows, const Tensor& matrix) {
            EXPECT_FALSE(is_dtensor(rows));
            return torch::tanh(rows.mm(matrix));
          },
          mesh, {{{Shard(0)}}, {{Replicate()}}}, {{{Shard(0)}}});
      CommRecorder recorder;
      const Tensor y = f(dx, dw);
      EXPECT_EQ(placements_of(y), (Placements{Shard(0)}));
      expect_close(y, expected, "result");
      y.pow(2).sum().backward();
      expect_close(dx.grad(), x.grad(), "gradient of x");
      expect_close(dw.grad(), w.grad(), "gradient of w");
    });
  }
}

// Columns times rows: each rank has a share of the sum.
TEST(LocalMapTest, SharesOfASum) {
  const Tensor x = numbers({3, 5}).requires_grad_();
  const Tensor w = numbers({5, 4}, 1).requires_grad_();
  const Tensor expected = x.mm(w);
  expected.pow(2).sum().backward();
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor dx = distribute_tensor(x.detach(), mesh, {Shard(0), Shard(1)}).requires_grad_();
    const Tensor dw = distribute_tensor(w.detach(), mesh, {Replicate(), Shard(0)}).requires_grad_();
    auto f = local_map([](const Tensor& a, const Tensor& b) { return a.mm(b); }, mesh,
                       {{{Shard(0), Shard(1)}}, {{Replicate(), Shard(0)}}}, {{{Shard(0), Partial()}}});
    const Tensor y = f(dx, dw);
    expect_close(y, expected, "result");
    y.pow(2).sum().backward();
    expect_close(dx.grad(), x.grad(), "gradient of x");
    expect_close(dw.grad(), w.grad(), "gradient of w");
  });
}

TEST(LocalMapTest, SeveralResultsAndArgumentsOfOtherTypes) {
  const Tensor x = numbers({4, 6});
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    auto f = local_map(
        [](const Tensor& a, double factor, const Tensor& plain, const std::string& name) {
          EXPECT_EQ(name, "name");
          return std::tuple(a * factor, a.size(1) + plain, a.sum());
        },
        mesh, {{{Shard(1)}}, {}, {}, {}}, {{{Shard(1)}}, {}, {{Partial()}}});
    const auto [scaled, sizes, sum] = f(distribute_tensor(x, mesh, {Shard(1)}), 2.0, torch::ones({2}), "name");
    expect_close(scaled, x * 2, "scaled");
    EXPECT_FALSE(is_dtensor(sizes));
    EXPECT_TRUE(sizes.equal(torch::full({2}, 4.0)));
    expect_close(sum, x.sum(), "sum");

    auto list = local_map(
        [](const Tensor& a) {
          return std::vector<Tensor>{a, a + 1};
        },
        mesh, {{{Shard(-1)}}}, {{{Shard(1)}}, {{Shard(1)}}});
    expect_close(list(distribute_tensor(x, mesh, {Shard(1)})).at(1), x + 1, "of a list");
    auto pair = local_map([](const Tensor& a) { return std::pair(a, a + 1); }, mesh, {{{Shard(1)}}},
                          {{{Shard(1)}}, {{Shard(1)}}});
    expect_close(pair(distribute_tensor(x, mesh, {Shard(1)})).second, x + 1, "of a pair");
  });
}

// Parts of results of any size: a rank keeps as many rows as it likes.
TEST(LocalMapTest, ResultsOfUnevenSizes) {
  spawn(3, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"dp"});
    const Tensor x = distribute_tensor(torch::arange(9, torch::kDouble), mesh, {Shard(0)});
    auto large =
        local_map([](const Tensor& a) { return a.masked_select(a > 3.5); }, mesh, {{{Shard(0)}}}, {{{Shard(0)}}});
    expect_close(large(x), torch::arange(4, 9, torch::kDouble), "rows");
  });
}

TEST(LocalMapTest, InputsAreMovedWhereThatIsAskedFor) {
  const Tensor x = numbers({4, 6}).requires_grad_();
  x.cumsum(1).pow(2).sum().backward();
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    auto f = local_map([](const Tensor& a) { return a.cumsum(1); }, mesh, {{{Shard(0)}}}, {{{Shard(0)}}},
                       {.redistribute_inputs = true});
    const Tensor dx = distribute_tensor(x.detach(), mesh, {Shard(1)}).requires_grad_();
    f(dx).pow(2).sum().backward();
    EXPECT_EQ(placements_of(dx.grad()), (Placements{Shard(1)}));
    expect_close(dx.grad(), x.grad(), "gradient");
    // A plain tensor counts as whole.
    const Tensor plain = x.detach().clone().requires_grad_();
    f(plain).pow(2).sum().backward();
    expect_close(plain.grad(), x.grad(), "gradient of a plain tensor");
  });
}

TEST(LocalMapTest, TheMeaningOfAGradientCanBeSaid) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor w = distribute_tensor(torch::ones({2}, torch::kDouble), mesh, {Replicate()}).requires_grad_();
    const Tensor x = distribute_tensor(numbers({4, 2}), mesh, {Shard(0)});
    // Every rank's gradient is said to be all of it.
    auto f = local_map([](const Tensor& a, const Tensor& b) { return a * 0 + b; }, mesh,
                       {{{Shard(0)}}, {{Replicate()}}}, {{{Shard(0)}}}, {.in_grad_placements = {{}, {{Replicate()}}}});
    f(x, w).sum().backward();
    expect_close(w.grad(), torch::full({2}, 2.0, torch::kDouble), "gradient");
  });
}

class LocalMapErrorTest : public ::testing::Test {
 protected:
  World world = fake_world(0, 2);
  WorldScope scope{world};
  DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
  Tensor x = distribute_tensor(torch::ones({4, 6}), mesh, {Shard(1)}, {.source = std::nullopt});

  static Tensor same(const Tensor& a) { return a; }
};

TEST_F(LocalMapErrorTest, OtherPlacements) {
  EXPECT_EQ(value_error([&] { local_map(same, mesh, {{{Shard(0)}}}, {{{Shard(0)}}})(x); }),
            "local_map: an argument has other placements than its entry\n"
            "  argument: 0\n"
            "  it is: f32[4, 6@tp] on [tp=2]\n"
            "  in[0]: (S(0))\n"
            "  help: sherd::redistribute(argument, {Shard(0)}), or LocalMapOptions{.redistribute_inputs = true}");
}

TEST_F(LocalMapErrorTest, AGradientInOtherParts) {
  const LocalMapOptions options{.in_grad_placements = PlacementsOfEach{Placements{Replicate()}}};
  EXPECT_EQ(value_error([&] { local_map(same, mesh, {{{Shard(1)}}}, {{{Shard(1)}}}, options)(x); }),
            "local_map: the gradient's parts would be others than the argument's\n"
            "  argument: 0\n"
            "  it is: f32[4, 6@tp] on [tp=2]\n"
            "  in_grad_placements[0]: (R)\n"
            "  help: Partial() or Replicate() where the argument is not cut, its own Shard where it is");
}

TEST_F(LocalMapErrorTest, AnotherMesh) {
  const DeviceMesh other = init_device_mesh("cpu", {2}, {"dp"});
  EXPECT_EQ(value_error([&] { local_map(same, other, {{{Shard(1)}}}, {{{Shard(1)}}})(x); }),
            "local_map: an argument lives on another mesh\n"
            "  argument: 0\n"
            "  it is: f32[4, 6@tp] on [tp=2]\n"
            "  mesh: [dp=2]\n"
            "  help: sherd::redistribute(argument, mesh, {Shard(1)})");
}

TEST_F(LocalMapErrorTest, EntriesThatDoNotFit) {
  EXPECT_EQ(value_error([&] { local_map(same, mesh, {}, {{{Shard(0)}}})(x); }),
            "local_map: 0 entries of placements for 1 argument\n"
            "  list: in\n"
            "  help: one entry per argument, std::nullopt for what is no DTensor");
  EXPECT_EQ(value_error([&] {
              local_map(same, mesh, {{{Shard(1)}}}, {{}, {}})(x);
            }),
            "local_map: 2 entries of placements for 1 result\n"
            "  list: out\n"
            "  help: one entry per result, std::nullopt for what is no DTensor");
  EXPECT_EQ(value_error([&] {
              local_map(same, mesh, {{{Shard(1), Shard(0)}}}, {{}})(x);
            }),
            "local_map: 2 placements for a mesh of 1 axis\n"
            "  in[0]: (S(1), S(0))\n"
            "  mesh: [tp=2]\n"
            "  help: one placement per axis of the mesh");
  EXPECT_EQ(value_error([&] { local_map(same, mesh, {{}}, {{}})(x); }),
            "local_map: an argument is a DTensor, and its entry says that it is none\n"
            "  argument: 0\n"
            "  it is: f32[4, 6@tp] on [tp=2]\n"
            "  help: in[0] = {Shard(1)}");
  EXPECT_EQ(
      value_error([&] { local_map([](double a) { return torch::full({}, a); }, mesh, {{{Shard(0)}}}, {{}})(1.0); }),
      "local_map: an argument has placements and is no tensor\n"
      "  argument: 0\n"
      "  in[0]: (S(0))\n"
      "  help: in[0] = std::nullopt");
  EXPECT_EQ(value_error([&] { local_map([&](const Tensor&) { return x; }, mesh, {{{Shard(1)}}}, {{{Shard(1)}}})(x); }),
            "local_map: the function returned a DTensor where its part is wanted\n"
            "  result: 0\n"
            "  it is: f32[4, 6@tp] on [tp=2]\n"
            "  help: return sherd::to_local(result), or out[0] = std::nullopt");
}

}  // namespace
}  // namespace sherd::testing
