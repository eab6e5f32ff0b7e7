// Operators along a sharded dim where parts are unlike each other: cut by the user, without rows, in half precision, or
// seen from a rank outside the mesh.

#include <gtest/gtest.h>

#include <mutex>

#include "property/distribute_any.h"
#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

struct Case {
  const char* name;
  std::function<Tensors(const at::Tensor&)> run;  // on nine rows of 2 x 4
};

template <class Pair>
Tensors both(const Pair& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

std::vector<Case> cases() {
  // clang-format off
  return {
      {"cumsum", [](auto& x) { return Tensors{x.cumsum(0)}; }},
      {"cumprod", [](auto& x) { return Tensors{x.cumprod(0)}; }},
      {"cummax", [](auto& x) { return both(x.cummax(0)); }},
      {"cummin", [](auto& x) { return both(x.cummin(0)); }},
      {"max", [](auto& x) { return both(x.max(0)); }},
      {"min_keepdim", [](auto& x) { return both(x.min(0, true)); }},
      {"argmax", [](auto& x) { return Tensors{x.argmax(0), x.argmax(), x.argmin()}; }},
      {"topk", [](auto& x) { return Tensors{std::get<0>(x.topk(1, 0)), std::get<0>(x.topk(5, 0))}; }},
      {"kthvalue", [](auto& x) { return Tensors{std::get<0>(x.kthvalue(1, 0))}; }},
      {"sort", [](auto& x) { return Tensors{std::get<0>(x.sort(0))}; }},
      {"flip", [](auto& x) { return Tensors{x.flip({0, 2})}; }},
      {"roll", [](auto& x) { return Tensors{x.roll({4, 1}, {0, 1})}; }},
      {"cat", [](auto& x) { return Tensors{torch::cat({x, x.slice(0, 2, 4), x}, 0)}; }},
      {"logsumexp", [](auto& x) { return Tensors{x.logsumexp(0)}; }},
      {"conv1d", [](auto& x) { return Tensors{torch::conv1d(x.permute({1, 2, 0}), torch::ones({3, 4, 3}, x.dtype()), {}, 2, 1)}; }},
      {"max_pool", [](auto& x) { return both(torch::max_pool2d_with_indices(x.permute({1, 0, 2}), {3, 1}, {2, 1}, {1, 0})); }},
      {"batch_norm", [](auto& x) { return Tensors{torch::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false)}; }},
      {"index_add", [](auto& x) { return Tensors{x.index_add(0, index({4}, 9), x.slice(0, 0, 4))}; }},
      {"scatter", [](auto& x) { return Tensors{x.scatter(0, index({3, 2, 4}, 9), 7)}; }},
      {"index_put", [](auto& x) { return Tensors{x.index_put({index({4}, 9)}, x.select(0, 0))}; }},
  };
  // clang-format on
}

at::Tensor rows() { return ints({9, 2, 4}).remainder(4); }

std::string difference(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  if (got.sizes() != expected.sizes()) return "sizes " + to_string(got.sizes().vec());
  if (got.scalar_type() != expected.scalar_type()) return "another dtype";
  const bool same = torch::allclose(got.to(torch::kDouble), expected.to(torch::kDouble), tolerance, tolerance, true);
  return same ? "" : "other values";
}

struct Where {
  const char* name;
  const char* mesh;
  const char* placements;
};

constexpr Where kWhere[] = {
    {"Uneven", "[a=4]", "(S(0))"},
    {"EmptyInTheMiddle", "[a=4]", "(S(0, cuts=0:3:3:8:9))"},
    {"EmptyAtBothEnds", "[a=3]", "(S(0, cuts=0:0:9:9))"},
    {"CutTwice", "[a=2, b=2]", "(S(0), S(0))"},
    {"CutTwiceByTheUser", "[a=2, b=2]", "(S(0, cuts=0:2:9), S(0, cuts=0:2:2:5:9))"},
    {"StridedShards", "[a=2, b=2]", "(S(0, split=2), S(0))"},
    {"OtherDimsToo", "[a=2, b=2]", "(S(2), S(0))"},
};

class AlongSharded : public ::testing::TestWithParam<Where> {};

TEST_P(AlongSharded, EqualsDense) {
  const at::NoGradGuard no_grad;
  for (const auto type : {torch::kDouble, torch::kFloat, torch::kBFloat16}) {
    const double tolerance = type == torch::kBFloat16 ? 2e-2 : 1e-5;
    const at::Tensor dense = rows().to(type);
    const Mesh shape = parse_mesh(GetParam().mesh);
    std::mutex mutex;
    spawn(static_cast<int>(shape.size()),
          [&](World&) {
            const DeviceMesh mesh("cpu", shape);
            for (const Case& one : cases()) {
              const at::NoGradGuard no_grad_here;
              const at::Tensor x = distribute_any(dense, mesh, parse_placements(GetParam().placements));
              const Tensors expected = one.run(dense);
              const Tensors got = one.run(x);
              for (size_t i = 0; i < got.size(); ++i) {
                const std::string wrong = difference(full_tensor(got[i]), expected[i], tolerance);
                const std::lock_guard lock(mutex);
                EXPECT_EQ(wrong, "") << one.name << " result " << i << " of " << to_string(x);
              }
            }
          },
          {.timeout = std::chrono::seconds(30)});
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, AlongSharded, ::testing::ValuesIn(kWhere),
                         [](const ::testing::TestParamInfo<Where>& where) { return where.param.name; });

TEST(AlongShardedTest, ARankOutsideTheMeshSeesTheSameSizes) {
  const at::NoGradGuard no_grad;
  const at::Tensor dense = rows();
  std::mutex mutex;
  spawn(3,
        [&](World&) {
          const at::NoGradGuard no_grad_here;
          const DeviceMesh mesh("cpu", parse_mesh("[a=2]"));
          for (const Case& one : cases()) {
            const at::Tensor x = distribute_tensor(dense, mesh, {Shard(0)}, {.source = std::nullopt});
            const Tensors expected = one.run(dense);
            const Tensors got = one.run(x);
            for (size_t i = 0; i < got.size(); ++i) {
              const std::lock_guard lock(mutex);
              EXPECT_EQ(got[i].sizes(), expected[i].sizes()) << one.name;
              EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << one.name;
              EXPECT_EQ(to_local(got[i]).numel() == 0, !mesh.coordinate()) << one.name;
            }
          }
        },
        {.timeout = std::chrono::seconds(30)});
}

TEST(AlongShardedTest, AnIndexThatNamesNoRowIsRefusedOnEveryRank) {
  std::atomic<int> refused = 0;
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const at::Tensor x = distribute_any(rows(), mesh, {Shard(0)});
    try {
      x.index_add(0, torch::tensor({0, 9}), x.slice(0, 0, 2));
    } catch (const c10::Error&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST(AlongShardedTest, StatisticsOfBatchNormFollowTheWholeBatch) {
  spawn(3, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"a"});
    const at::Tensor x = ints({7, 3, 2});
    torch::nn::BatchNorm1d one(3);
    torch::nn::BatchNorm1d other(3);
    one->to(torch::kDouble);
    other->to(torch::kDouble);
    for (int step = 0; step < 3; ++step) {
      one->forward(x * (step + 1));
      other->forward(distribute_any(x * (step + 1), mesh, {Shard(0)}));
    }
    EXPECT_TRUE(torch::allclose(one->running_mean, other->running_mean));
    EXPECT_TRUE(torch::allclose(one->running_var, other->running_var));
  });
}

}  // namespace
}  // namespace sherd::testing
