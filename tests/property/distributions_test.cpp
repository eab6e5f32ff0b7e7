// What is drawn has the distribution it is said to have, in each shard alone too, and shards do not resemble each
// other. Bounds are about five standard errors: with the seed fixed these tests never change their minds.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>

#include "sherd/dtensor.h"
#include "sherd/random.h"

namespace sherd::testing {
namespace {

using at::Tensor;

constexpr int64_t kCount = 1 << 20;

// The largest difference between the fraction of numbers up to x and what it should be (Kolmogorov and Smirnov), times
// the root of their number; 2.1 is passed once in 3,400 draws.
double distance(const Tensor& numbers, const std::function<Tensor(const Tensor&)>& fraction) {
  const Tensor sorted = std::get<0>(numbers.flatten().to(at::kDouble).sort());
  const auto n = static_cast<double>(sorted.numel());
  const Tensor expected = fraction(sorted);
  const Tensor above = (torch::arange(1.0, n + 1, at::kDouble) / n - expected).abs().max();
  const Tensor below = (expected - torch::arange(0.0, n, at::kDouble) / n).abs().max();
  return std::sqrt(n) * std::max(above.item<double>(), below.item<double>());
}

struct Continuous {
  std::string name;
  std::function<void(Tensor&)> draw;
  std::function<Tensor(const Tensor&)> fraction;
};

std::vector<Continuous> continuous() {
  const auto normal = [](const Tensor& x, double mean, double deviation) {
    return torch::special::ndtr((x - mean) / deviation);
  };
  return {
      {"uniform", [](Tensor& x) { x.uniform_(-2, 3); }, [](const Tensor& x) { return ((x + 2) / 5).clamp(0, 1); }},
      {"normal", [](Tensor& x) { x.normal_(1, 2); }, [=](const Tensor& x) { return normal(x, 1, 2); }},
      {"log_normal", [](Tensor& x) { x.log_normal_(0, 0.5); },
       [=](const Tensor& x) { return normal(x.log(), 0, 0.5); }},
      {"exponential", [](Tensor& x) { x.exponential_(3); }, [](const Tensor& x) { return 1 - (-3 * x).exp(); }},
      {"cauchy", [](Tensor& x) { x.cauchy_(1, 2); }, [](const Tensor& x) { return ((x - 1) / 2).atan() / M_PI + 0.5; }},
  };
}

TEST(DistributionsTest, ContinuousOnesHaveTheirDistributionInEveryShard) {
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      for (const Continuous& distribution : continuous()) {
        manual_seed(17);
        Tensor x = empty({kCount}, mesh, {Shard(0)}, dtype);
        distribution.draw(x);
        EXPECT_LT(distance(to_local(x), distribution.fraction), 2.1)
            << distribution.name << " on rank " << world.rank();
        const Tensor all = full_tensor(x);
        if (world.rank() == 0) {
          EXPECT_LT(distance(all, distribution.fraction), 2.1) << distribution.name;
        }
      }
    }
  });
}

TEST(DistributionsTest, UniformBitsAreUniform) {
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    manual_seed(1);
    const Tensor x = full_tensor(randint(0, 256, {kCount}, mesh, {Shard(0)}));
    if (world.rank() != 0) return;
    const Tensor counts = torch::bincount(x, {}, 256).to(at::kDouble);
    const double expected = kCount / 256.0;
    const double chi = ((counts - expected).square() / expected).sum().item<double>();
    EXPECT_NEAR(chi, 255, 5 * std::sqrt(2 * 255.0));
    // Pairs of neighbours, too.
    const Tensor half_bytes = x.div(16, "floor").view({-1, 2});
    const Tensor pairs = torch::bincount(half_bytes.select(1, 0) * 16 + half_bytes.select(1, 1), {}, 256);
    const double expected_pairs = kCount / 512.0;
    EXPECT_NEAR(((pairs - expected_pairs).square() / expected_pairs).sum().item<double>(), 255,
                5 * std::sqrt(2 * 255.0));
  });
}

TEST(DistributionsTest, ShardsDrawsAndNeighboursAreIndependent) {
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    manual_seed(23);
    const Tensor a = full_tensor(randn({4, kCount / 4}, mesh, {Shard(0)}, at::kDouble));
    const Tensor b = full_tensor(randn({4, kCount / 4}, mesh, {Shard(0)}, at::kDouble));
    if (world.rank() != 0) return;
    const double error = 5 / std::sqrt(kCount / 4.0);
    const Tensor shards = torch::corrcoef(a);
    EXPECT_LT((shards - torch::eye(4, at::kDouble)).abs().max().item<double>(), error) << shards;
    EXPECT_LT(torch::corrcoef(torch::stack({a.flatten(), b.flatten()}))[0][1].abs().item<double>(), error) << "draws";
    for (const int64_t step : {1, 2, 4}) {
      const Tensor x = a.flatten();
      const Tensor near = x.narrow(0, 0, kCount - step);
      const Tensor far = x.narrow(0, step, kCount - step);
      EXPECT_LT(torch::corrcoef(torch::stack({near, far}))[0][1].abs().item<double>(), error) << "step " << step;
      // Box and Muller make a pair of one radius: their squares must not know of each other either.
      EXPECT_LT(torch::corrcoef(torch::stack({near.square(), far.square()}))[0][1].abs().item<double>(), error);
    }
  });
}

TEST(DistributionsTest, SeedsAndOffsetsThatAreNearAreIndependent) {
  const double error = 5 / std::sqrt(65536.0);
  std::vector<Tensor> rows;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    rows.push_back(torch::empty({65536}, at::kDouble).normal_(0, 1, Generator(seed)));
  }
  const Tensor correlations = torch::corrcoef(torch::stack(rows)) - torch::eye(4, at::kDouble);
  EXPECT_LT(correlations.abs().max().item<double>(), error);
}

struct Counted {
  std::string name;
  std::function<Tensor(const DeviceMesh&)> draw;
  double mean, variance;
};

TEST(DistributionsTest, CountsHaveTheirMeanAndVariance) {
  const auto whole = [](const DeviceMesh& mesh, double value) {
    return full({kCount}, value, mesh, {Shard(0)}, at::kDouble);
  };
  const std::vector<Counted> counted = {
      {"bernoulli", [&](auto& mesh) { return whole(mesh, 0).bernoulli_(0.3); }, 0.3, 0.21},
      {"bernoulli of tensors", [&](auto& mesh) { return torch::bernoulli(whole(mesh, 0.3)); }, 0.3, 0.21},
      {"geometric", [&](auto& mesh) { return whole(mesh, 0).geometric_(0.25); }, 4, 12},
      {"poisson, small", [&](auto& mesh) { return torch::poisson(whole(mesh, 0.7)); }, 0.7, 0.7},
      {"poisson", [&](auto& mesh) { return torch::poisson(whole(mesh, 9.5)); }, 9.5, 9.5},
      {"poisson, large", [&](auto& mesh) { return torch::poisson(whole(mesh, 10.5)); }, 10.5, 10.5},
      {"poisson, huge", [&](auto& mesh) { return torch::poisson(whole(mesh, 1e4)); }, 1e4, 1e4},
      {"binomial, few", [&](auto& mesh) { return torch::binomial(whole(mesh, 20), whole(mesh, 0.2)); }, 4, 3.2},
      {"binomial", [&](auto& mesh) { return torch::binomial(whole(mesh, 100), whole(mesh, 0.4)); }, 40, 24},
      {"binomial, likely", [&](auto& mesh) { return torch::binomial(whole(mesh, 1000), whole(mesh, 0.9)); }, 900, 90},
  };
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    for (const Counted& each : counted) {
      manual_seed(31);
      const Tensor x = full_tensor(each.draw(mesh)).to(at::kDouble);
      if (world.rank() != 0) continue;
      const double n = kCount;
      EXPECT_NEAR(x.mean().item<double>(), each.mean, 5 * std::sqrt(each.variance / n)) << each.name;
      const double fourth = (x - each.mean).pow(4).mean().item<double>();
      const double error = std::sqrt((fourth - each.variance * each.variance) / n);
      EXPECT_NEAR(x.var().item<double>(), each.variance, 5 * error) << each.name;
    }
  });
}

// The whole distribution of the two that reject, against their formulas.
TEST(DistributionsTest, PoissonAndBinomialHaveTheirProbabilities) {
  const auto chi_per_bin = [](const Tensor& x, const std::function<double(int64_t)>& log_probability, int64_t bins) {
    const Tensor counts = torch::bincount(x.to(at::kLong), {}, bins);
    double chi = 0;
    double used = 0;
    for (int64_t k = 0; k < counts.size(0); ++k) {
      const double expected = std::exp(log_probability(k)) * static_cast<double>(x.numel());
      if (expected < 20) continue;
      chi += std::pow(counts[k].item<double>() - expected, 2) / expected;
      used += 1;
    }
    return (chi - used) / std::sqrt(2 * used);
  };
  for (const double rate : {3.0, 12.0, 60.0}) {
    const Tensor x = torch::poisson(torch::full({kCount}, rate, at::kDouble), Generator(2));
    const auto logs = [&](int64_t k) {
      return static_cast<double>(k) * std::log(rate) - rate - std::lgamma(static_cast<double>(k) + 1);
    };
    EXPECT_LT(std::abs(chi_per_bin(x, logs, 200)), 5) << rate;
  }
  for (const auto& [trials, p] : {std::pair{40.0, 0.1}, {100.0, 0.35}, {400.0, 0.7}}) {
    const Tensor x = torch::binomial(torch::full({kCount}, trials, at::kDouble), torch::full({kCount}, p, at::kDouble),
                                     Generator(2));
    const auto logs = [n = trials, q = p](int64_t k) {
      const auto d = static_cast<double>(k);
      return std::lgamma(n + 1) - std::lgamma(d + 1) - std::lgamma(n - d + 1) + d * std::log(q) +
             (n - d) * std::log1p(-q);
    };
    EXPECT_LT(std::abs(chi_per_bin(x, logs, 500)), 5) << trials << " " << p;
  }
}

TEST(DistributionsTest, MultinomialFollowsItsWeights) {
  const Tensor weights = torch::tensor({1.0, 0.0, 3.0, 6.0}, at::kDouble);
  const Tensor with = torch::multinomial(weights, 100'000, true, Generator(4));
  const Tensor shares = torch::bincount(with, {}, 4).to(at::kDouble) / 1e5;
  EXPECT_TRUE(shares.allclose(weights / 10, 0, 5 * std::sqrt(0.25 / 1e5))) << shares;
  EXPECT_EQ(shares[1].item<double>(), 0) << "a weight of 0";
  // Without replacement the first has the weights' shares, and the second what is left.
  const Tensor rows = torch::multinomial(weights.expand({100'000, 4}), 2, false, Generator(4));
  const Tensor first = torch::bincount(rows.select(1, 0), {}, 4).to(at::kDouble) / 1e5;
  EXPECT_TRUE(first.allclose(weights / 10, 0, 5 * std::sqrt(0.25 / 1e5))) << first;
  const Tensor after_last = rows.select(1, 1).masked_select(rows.select(1, 0) == 3);
  const Tensor second = torch::bincount(after_last, {}, 4).to(at::kDouble) / static_cast<double>(after_last.numel());
  EXPECT_TRUE(second.allclose(torch::tensor({0.25, 0.0, 0.75, 0.0}, at::kDouble), 0, 0.012)) << second;
}

TEST(DistributionsTest, EndsAreKept) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const Tensor x = torch::empty({kCount}, dtype).uniform_(0, 1, Generator(6));
    EXPECT_GE(x.min().item<double>(), 0);
    EXPECT_LT(x.max().item<double>(), 1) << dtype;
    const Tensor y = torch::empty({kCount}, dtype).uniform_(1, 3, Generator(6));
    EXPECT_LT(y.max().item<double>(), 3) << dtype;
    EXPECT_TRUE(torch::empty({5}, dtype).uniform_(2, 2, Generator(6)).eq(2).all().item<bool>());
    EXPECT_GT(torch::empty({kCount}, dtype).exponential_(1, Generator(6)).min().item<double>(),
              dtype == at::kHalf ? -1 : 0);
  }
  EXPECT_TRUE(torch::empty({1000}).bernoulli_(1, Generator(1)).eq(1).all().item<bool>());
  EXPECT_TRUE(torch::empty({1000}).bernoulli_(0, Generator(1)).eq(0).all().item<bool>());
  const Tensor bytes = torch::empty({kCount}, at::kByte).random_(Generator(1));
  EXPECT_EQ(bytes.max().item<int64_t>(), 255);
  EXPECT_EQ(bytes.min().item<int64_t>(), 0);
  const Tensor longs =
      torch::empty({kCount}, at::kLong).random_(std::numeric_limits<int64_t>::min(), std::nullopt, Generator(1));
  EXPECT_NEAR(longs.lt(0).to(at::kDouble).mean().item<double>(), 0.5, 0.003);
}

}  // namespace
}  // namespace sherd::testing
