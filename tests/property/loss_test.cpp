// Losses of logits whose classes lie on different ranks: values and gradients of one device, gradients cut as the
// logits are, and communication that does not depend on the number of classes.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().mul(3).view(shape);
}

Tensor classes(at::IntArrayRef shape, int64_t below) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kLong).mul(5).add(1).remainder(below).view(shape);
}

struct Loss {
  std::string name;
  std::function<Tensor(const Tensor& logits, const Tensor& target, const Tensor& weight)> run;
  bool probabilities = false;
};

F::CrossEntropyFuncOptions options(F::CrossEntropyFuncOptions::reduction_t reduction, double smoothing = 0,
                                   const Tensor& weight = {}) {
  return F::CrossEntropyFuncOptions()
      .reduction(std::move(reduction))
      .label_smoothing(smoothing)
      .weight(weight)
      .ignore_index(2);
}

std::vector<Loss> losses() {
  std::vector<Loss> all;
  const auto add = [&](const std::string& name, auto run, bool probabilities = false) {
    all.push_back({name, run, probabilities});
  };
  add("mean", [](auto& x, auto& t, auto&) { return F::cross_entropy(x, t, options(torch::kMean)); });
  add("sum", [](auto& x, auto& t, auto&) { return F::cross_entropy(x, t, options(torch::kSum)); });
  add("none", [](auto& x, auto& t, auto&) { return F::cross_entropy(x, t, options(torch::kNone)); });
  add("weighted_mean", [](auto& x, auto& t, auto& w) { return F::cross_entropy(x, t, options(torch::kMean, 0, w)); });
  add("weighted_sum", [](auto& x, auto& t, auto& w) { return F::cross_entropy(x, t, options(torch::kSum, 0, w)); });
  add("weighted_none", [](auto& x, auto& t, auto& w) { return F::cross_entropy(x, t, options(torch::kNone, 0, w)); });
  add("smoothed_mean", [](auto& x, auto& t, auto&) { return F::cross_entropy(x, t, options(torch::kMean, 0.1)); });
  add("smoothed_none", [](auto& x, auto& t, auto& w) { return F::cross_entropy(x, t, options(torch::kNone, 0.2, w)); });
  add("smoothed_weighted",
      [](auto& x, auto& t, auto& w) { return F::cross_entropy(x, t, options(torch::kMean, 0.2, w)); });
  add(
      "probabilities_mean", [](auto& x, auto& t, auto&) { return F::cross_entropy(x, t); }, true);
  add(
      "probabilities_none",
      [](auto& x, auto& t, auto& w) {
        return F::cross_entropy(x, t,
                                F::CrossEntropyFuncOptions().reduction(torch::kNone).weight(w).label_smoothing(0.1));
      },
      true);
  add("nll", [](auto& x, auto& t, auto& w) {
    return F::nll_loss(torch::log_softmax(x, 1), t, F::NLLLossFuncOptions().weight(w).reduction(torch::kMean));
  });
  return all;
}

struct Where {
  const char* mesh;
  const char* placements;  // of logits whose classes are dim 1
};

constexpr Where kWhere[] = {
    {"[tp=1]", "(S(1))"},
    {"[tp=2]", "(S(1))"},
    {"[tp=3]", "(S(1))"},
    {"[tp=4]", "(S(1))"},
    {"[tp=3]", "(S(1, cuts=0:0:6:7))"},
    {"[dp=2, tp=2]", "(S(0), S(1))"},
    {"[dp=2, tp=2]", "(R, S(1))"},
    {"[tp=2, dp=2]", "(S(1), S(0))"},
    {"[a=2, b=2]", "(S(1), S(1))"},
    {"[a=2, b=2]", "(S(1, split=2), S(1))"},
};

void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  const Tensor whole = full_tensor(got);
  ASSERT_EQ(whole.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(torch::allclose(whole, expected, 1e-10, 1e-10, true)) << what << "\n" << whole << "\n" << expected;
}

class EveryLoss : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryLoss, IsThatOfOneDevice) {
  const Loss loss = losses()[GetParam()];
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{6, 7}, {3, 7, 4}, {2, 7, 3, 2}, {2, 7, 2, 1, 3}}) {
    std::vector<int64_t> samples = shape;
    samples.erase(samples.begin() + 1);
    const Tensor target = loss.probabilities ? torch::softmax(numbers(shape, 3), 1) : classes(samples, 7);
    const Tensor weight = numbers({7}, 9).abs();
    const Tensor dense = numbers(shape).requires_grad_();
    const Tensor expected = loss.run(dense, target, weight);
    (expected * numbers(expected.sizes(), 4)).sum().backward();
    for (const Where& where : kWhere) {
      const Mesh ranks = parse_mesh(where.mesh);
      const Placements placements = parse_placements(where.placements);
      spawn(static_cast<int>(ranks.size()), [&](World&) {
        const DeviceMesh mesh("cpu", ranks);
        for (const bool plain_target : {true, false}) {
          const Tensor logits = distribute_tensor(dense.detach(), mesh, placements).requires_grad_();
          // The batch of the targets lies as that of the logits.
          Placements of_target = placements;
          for (Placement& p : of_target) {
            if (sharded_dim(p) == 1 && !loss.probabilities) p = Replicate();
          }
          const Tensor t = plain_target ? target : distribute_tensor(target, mesh, of_target);
          const Tensor w =
              plain_target ? weight : distribute_tensor(weight, mesh, Placements(placements.size(), Replicate()));
          const LossParallel no_gathering;
          const Tensor got = loss.run(logits, t, w);
          (got * numbers(got.sizes(), 4)).sum().backward();
          const std::string what = loss.name + " on " + where.mesh + " " + where.placements + " of " +
                                   std::to_string(shape.size()) + " dims";
          EXPECT_EQ(placements_of(logits.grad()), placements) << what;
          expect_close(got, expected.detach(), what);
          expect_close(logits.grad(), dense.grad(), "gradient of " + what);
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, EveryLoss, ::testing::Range<size_t>(0, losses().size()),
                         [](const ::testing::TestParamInfo<size_t>& loss) { return losses()[loss.param].name; });

// A vector of logits and one target.
TEST(LossTest, OneSample) {
  const Tensor dense = numbers({7}).requires_grad_();
  const Tensor expected = F::cross_entropy(dense, torch::tensor(4));
  expected.backward();
  spawn(3, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"tp"});
    const Tensor logits = distribute_tensor(dense.detach(), mesh, {Shard(0)}).requires_grad_();
    const Tensor got = F::cross_entropy(logits, torch::tensor(4));
    got.backward();
    expect_close(got, expected.detach(), "loss");
    expect_close(logits.grad(), dense.grad(), "gradient");
  });
}

// Two classes on three ranks: the rank without any takes part in moving the weights.
TEST(LossTest, WeightsThatMoveWhereARankHasNoClasses) {
  const Tensor weight = numbers({2}, 9).abs();
  const Tensor expected = F::cross_entropy(numbers({6, 2}), classes({6}, 2), options(torch::kMean, 0, weight));
  spawn(3, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"tp"});
    const Tensor elsewhere = distribute_tensor(weight, mesh, {Ragged(0, {0, 0, 0, 2})});
    const Tensor logits = distribute_tensor(numbers({6, 2}), mesh, {Shard(1)});
    expect_close(F::cross_entropy(logits, classes({6}, 2), options(torch::kMean, 0, elsewhere)), expected, "loss");
  });
}

TEST(LossTest, WeightsThatAreCutAsTheClasses) {
  const Tensor weight = numbers({7}, 9).abs();
  const Tensor expected = F::cross_entropy(numbers({6, 7}), classes({6}, 7), options(torch::kMean, 0, weight));
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor cut = distribute_tensor(weight, mesh, {Shard(0)});
    const Tensor logits = distribute_tensor(numbers({6, 7}), mesh, {Shard(1)});
    expect_close(F::cross_entropy(logits, classes({6}, 7), options(torch::kMean, 0, cut)), expected, "loss");
  });
}

TEST(LossTest, HalfPrecisionIsWorkedOnInFloat) {
  const Tensor dense = numbers({6, 9}).to(torch::kBFloat16);
  const double expected = F::cross_entropy(dense.to(torch::kFloat), classes({6}, 9)).item<double>();
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor got = F::cross_entropy(distribute_tensor(dense, mesh, {Shard(1)}), classes({6}, 9));
    EXPECT_EQ(got.scalar_type(), torch::kBFloat16);
    EXPECT_NEAR(full_tensor(got).item<double>(), expected, 0.02 * expected);
  });
}

// What a rank receives in forward and backward.
int64_t bytes_moved(const Loss& loss, int64_t num_classes) {
  std::atomic<int64_t> most{0};
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor logits = distribute_tensor(numbers({8, num_classes}), mesh, {Shard(0), Shard(1)}).requires_grad_();
    const Tensor target =
        loss.probabilities
            ? distribute_tensor(torch::softmax(numbers({8, num_classes}, 3), 1), mesh, {Shard(0), Shard(1)})
            : distribute_tensor(classes({8}, num_classes), mesh, {Shard(0), Replicate()});
    const Tensor weight = numbers({num_classes}, 9).abs();
    const CommRecorder recorder;
    loss.run(logits, target, weight).sum().backward();
    int64_t seen = most.load();
    while (seen < recorder.bytes() && !most.compare_exchange_weak(seen, recorder.bytes())) {
    }
  });
  return most;
}

TEST_P(EveryLoss, MovesTheSameForAnyNumberOfClasses) {
  const Loss loss = losses()[GetParam()];
  const int64_t few = bytes_moved(loss, 16);
  EXPECT_GT(few, 0);
  EXPECT_EQ(bytes_moved(loss, 1600), few);
  EXPECT_LE(few, 16 * 4 * 8);  // a few numbers per sample of this rank
}

TEST(LossTest, ATargetThatIsNoClass) {
  const auto errors = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor logits = distribute_tensor(numbers({3, 8}), mesh, {Shard(1)});
    F::cross_entropy(logits, torch::tensor({1, 8, 2}));
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "nll_loss: a target is no class\n"
              "  target: 8\n"
              "  classes: 8\n"
              "  help: targets in [0, classes), or ignore_index for samples that do not count");
  }
}

TEST(LossTest, InAScopeALossThatMustSeeAllClassesIsRefused) {
  const auto errors = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor logits = distribute_tensor(numbers({4, 8}), mesh, {Shard(1)});
    const Tensor target = classes({4}, 8);
    F::multi_margin_loss(logits, target);  // outside of a scope it gathers
    const LossParallel scope;
    F::multi_margin_loss(logits, target);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "multi_margin_loss: would gather the classes of its logits in a LossParallel scope\n"
              "  logits: (S(1)) -> (S(0)): exchange@tp 64 B\n"
              "  help: logits = sherd::redistribute(logits, {Shard(0)}), or torch::nn::functional::cross_entropy");
  }
}

}  // namespace
}  // namespace sherd::testing
