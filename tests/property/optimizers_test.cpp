// Optimizers and schedulers of torch, as they are, over DTensors: parameters of one device after some steps, with and
// without accumulated gradients.

#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;
namespace optim = torch::optim;

struct Case {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor>)> make;
};

template <class Optimizer, class Options>
Case with(const char* name, const Options& options) {
  return {name, [options](std::vector<Tensor> parameters) {
            return std::make_unique<Optimizer>(std::move(parameters), options);
          }};
}

std::vector<Case> cases() {
  return {
      with<optim::SGD>("SGD", optim::SGDOptions(0.05)),
      with<optim::SGD>("SGDMomentum", optim::SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(0.01)),
      with<optim::SGD>("SGDNesterov", optim::SGDOptions(0.05).momentum(0.9).nesterov(true)),
      with<optim::Adam>("Adam", optim::AdamOptions(0.05).weight_decay(0.01)),
      with<optim::Adam>("AdamAmsgrad", optim::AdamOptions(0.05).amsgrad(true)),
      with<optim::AdamW>("AdamW", optim::AdamWOptions(0.05)),
      with<optim::Adagrad>("Adagrad", optim::AdagradOptions(0.05).lr_decay(0.1)),
      with<optim::RMSprop>("RMSprop", optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
      with<optim::LBFGS>("LBFGS", optim::LBFGSOptions(0.5).max_iter(4).history_size(3)),
      with<optim::LBFGS>("LBFGSLineSearch",
                         optim::LBFGSOptions(1).max_iter(3).line_search_fn(std::string("strong_wolfe"))),
  };
}

constexpr int kSteps = 4;

// Steps on batches that are put where `placed` says; returns the losses.
std::vector<double> train(const torch::nn::Sequential& model, optim::Optimizer& optimizer,
                          const std::function<Tensor(const Tensor&)>& placed) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor batch = placed(numbers({5, 5}, step));
    const Tensor target = placed(numbers({5, 3}, step + 9));
    const auto closure = [&] {
      optimizer.zero_grad();
      const Tensor loss = torch::mse_loss(output_of(model, batch), target);
      loss.backward();
      return loss;
    };
    losses.push_back(whole_of(optimizer.step(closure)).item<double>());
  }
  return losses;
}

class EveryOptimizer : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryOptimizer, TrainsAsOnOneDevice) {
  const Case each = cases()[GetParam()];
  const auto dense = make_mlp();
  const auto alone = each.make(dense->parameters());
  const auto expected = train(dense, *alone, [](const Tensor& batch) { return batch; });
  ASSERT_NE(expected.front(), expected.back());
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto model = make_mlp(mesh, placed_as);
    const auto optimizer = each.make(model->parameters());
    const auto losses =
        train(model, *optimizer, [&](const Tensor& batch) { return distribute_batch(batch, mesh, placed_as); });
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-10);
    expect_all_close(model->parameters(), dense->parameters(), "parameter");
    for (const Tensor& parameter : model->parameters()) {
      EXPECT_EQ(placements_of(parameter), parse_placements(parameter.dim() == 2 ? placed_as.matrix : placed_as.vector));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer, ::testing::Range<size_t>(0, cases().size()),
                         [](const ::testing::TestParamInfo<size_t>& each) { return cases()[each.param].name; });

TEST(OptimizersTest, GradientsOfSeveralBatchesAddUp) {
  const auto accumulate = [](const torch::nn::Sequential& model, const std::function<Tensor(const Tensor&)>& placed) {
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0.05));
    for (int step = 0; step < 6; ++step) {
      torch::mse_loss(output_of(model, placed(numbers({5, 5}, step))), placed(numbers({5, 3}, step + 9)))
          .div(3)
          .backward();
      if (step % 3 != 2) continue;
      optimizer.step();
      optimizer.zero_grad(step < 5);
    }
  };
  const auto dense = make_mlp();
  accumulate(dense, [](const Tensor& batch) { return batch; });
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto model = make_mlp(mesh, placed_as);
    accumulate(model, [&](const Tensor& batch) { return distribute_batch(batch, mesh, placed_as); });
    expect_all_close(model->parameters(), dense->parameters(), "parameter");
  });
}

TEST(OptimizersTest, SchedulersSetTheSameRates) {
  const auto rates_of = [](const torch::nn::Sequential& model, const std::function<Tensor(const Tensor&)>& placed) {
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.4));
    optim::StepLR steps(optimizer, 2, 0.5);
    optim::ReduceLROnPlateauScheduler plateau(optimizer, optim::ReduceLROnPlateauScheduler::min, 0.1F, 1, 0.5);
    std::vector<double> rates;
    for (int step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      const Tensor loss = torch::mse_loss(output_of(model, placed(numbers({5, 5}))), placed(numbers({5, 3}, 9)));
      loss.backward();
      optimizer.step();
      steps.step();
      plateau.step(loss.item<float>());
      rates.push_back(optimizer.param_groups()[0].options().get_lr());
    }
    return rates;
  };
  const auto dense = make_mlp();
  const std::vector<double> expected = rates_of(dense, [](const Tensor& batch) { return batch; });
  EXPECT_LT(expected.back(), 0.4 / 16);
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto model = make_mlp(mesh, placed_as);
    EXPECT_EQ(rates_of(model, [&](const Tensor& batch) { return distribute_batch(batch, mesh, placed_as); }), expected);
    expect_all_close(model->parameters(), dense->parameters(), "parameter");
  });
}

}  // namespace
}  // namespace sherd::testing
