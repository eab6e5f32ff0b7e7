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

// Fills the gradients of a model with those of a batch; returns the loss.
Tensor fill_gradients(const torch::nn::Sequential& model, optim::Optimizer& optimizer, int step,
                      const std::function<Tensor(const Tensor&)>& placed) {
  optimizer.zero_grad();
  const Tensor loss =
      torch::mse_loss(output_of(model, placed(numbers({5, 5}, step))), placed(numbers({5, 3}, step + 9)));
  loss.backward();
  return loss;
}

// Steps on batches that are put where `placed` says; returns the losses.
std::vector<double> train(const torch::nn::Sequential& model, optim::Optimizer& optimizer,
                          const std::function<Tensor(const Tensor&)>& placed) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const auto closure = [&] { return fill_gradients(model, optimizer, step, placed); };
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

TEST_P(EveryOptimizer, FusedStepsAndOrdinaryOnesDoTheSame) {
  const Case each = cases()[GetParam()];
  const std::string name = each.name;
  if (name.starts_with("LBFGS")) return;  // its step needs a closure
  const bool has_kernels = name.starts_with("SGD") || name.starts_with("Adam");
  const auto dense = make_mlp();
  const auto alone = each.make(dense->parameters());
  train(dense, *alone, [](const Tensor& batch) { return batch; });
  // The first step of the one is the last but one of the other: both kinds begin, both go on.
  for (const int fused : {0, 1}) {
    const auto train_by_turns = [&](const torch::nn::Sequential& model, const auto& placed) {
      const auto optimizer = each.make(model->parameters());
      for (int step = 0; step < kSteps; ++step) {
        fill_gradients(model, *optimizer, step, placed);
        if (step % 2 == fused) {
          EXPECT_EQ(fused_step(*optimizer), has_kernels);
        } else {
          optimizer->step();
        }
      }
      expect_all_close(model->parameters(), dense->parameters(), "parameter");
    };
    train_by_turns(make_mlp(), [](const Tensor& batch) { return batch; });
    on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
      train_by_turns(make_mlp(mesh, placed_as),
                     [&](const Tensor& batch) { return distribute_batch(batch, mesh, placed_as); });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer, ::testing::Range<size_t>(0, cases().size()),
                         [](const ::testing::TestParamInfo<size_t>& each) { return cases()[each.param].name; });

// Steps of both kinds on two sets of parameters with the same values and gradients.
void expect_same_steps(const std::function<std::vector<Tensor>()>& make, bool fuses) {
  const auto options = optim::AdamWOptions(0.05).amsgrad(true);
  const std::vector<Tensor> one = make(), other = make();
  optim::AdamW by_itself(one, options), fused(other, options);
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < one.size(); ++i) {
      if (step == 0 && i == 1) continue;  // no gradient yet: its count of steps stays behind
      for (const Tensor& parameter : {one[i], other[i]}) {
        // Memory in the order of the parameter, but for one that lies otherwise.
        Tensor gradient = at::empty_like(parameter).copy_(numbers(parameter.sizes(), step));
        if (!fuses && i == 0) gradient = gradient.t().contiguous().t();
        parameter.mutable_grad() = gradient;
      }
    }
    by_itself.step();
    EXPECT_EQ(fused_step(fused), fuses);
  }
  expect_all_close(other, one, "parameter", 1e-6);
}

TEST(OptimizersTest, FusedStepsTakeParametersOfEveryKind) {
  const auto leaf = [](const Tensor& tensor, at::ScalarType dtype) {
    return tensor.to(dtype).detach().requires_grad_();
  };
  const auto make = [&]() -> std::vector<Tensor> {
    return {leaf(numbers({4, 3}, 1), at::kDouble),
            leaf(numbers({5}, 2), at::kDouble),
            leaf(numbers({3, 3}, 3), at::kFloat),
            leaf(numbers({6, 2}, 4).t(), at::kDouble),
            leaf(numbers({0, 2}), at::kDouble),
            leaf(numbers({2, 4, 3, 3}, 5).contiguous(at::MemoryFormat::ChannelsLast), at::kFloat)};
  };
  expect_same_steps(make, /*fuses=*/true);
  expect_same_steps(make, /*fuses=*/false);
  // Memory with gaps.
  expect_same_steps(
      [&] {
        return std::vector<Tensor>{numbers({4, 6}).slice(1, 0, 3).detach().requires_grad_()};
      },
      false);
}

TEST(OptimizersTest, FusedStepsBringStateToTheParametersOrder) {
  const auto steps = [](bool fuses) {
    const Tensor parameter = numbers({4, 3}).detach().requires_grad_();
    optim::Adam optimizer({parameter}, optim::AdamOptions(0.05));
    for (int step = 0; step < 3; ++step) {
      parameter.mutable_grad() = numbers({4, 3}, step + 1);
      fuses ? static_cast<void>(fused_step(optimizer)) : static_cast<void>(optimizer.step());
      auto& state = static_cast<optim::AdamParamState&>(*optimizer.state()[parameter.unsafeGetTensorImpl()]);
      state.exp_avg(state.exp_avg().t().contiguous().t());
    }
    return parameter;
  };
  expect_close(steps(true), steps(false), "parameter");
}

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
