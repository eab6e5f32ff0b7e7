// Losses scaled and gradients unscaled: steps, skipped steps and scales are those of one device, on every rank.
// Autocast on a mesh computes what it does on one device.

#include "sherd/grad_scaler.h"

#include <ATen/autocast_mode.h>

#include <limits>

#include "error/rank_errors.h"
#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Some steps, of which two have a gradient that is not finite, each found by one rank alone.
struct Trained {
  std::vector<double> scales;
  std::vector<bool> stepped;
  std::vector<Tensor> parameters;
};

Trained train(const torch::nn::Sequential& model, const std::function<Tensor(const Tensor&)>& placed) {
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  Trained run;
  for (int step = 0; step < 6; ++step) {
    Tensor batch = numbers({5, 5}, step);
    if (step == 1) batch[4][0] = kInfinity;
    if (step == 4) batch[0][0] = std::numeric_limits<double>::quiet_NaN();
    optimizer.zero_grad();
    scaler.scale(output_of(model, placed(batch)).pow(2).sum()).backward();
    if (step % 2 == 0) scaler.unscale_(optimizer);
    run.stepped.push_back(scaler.step(optimizer));
    scaler.update();
    run.scales.push_back(scaler.current_scale());
  }
  for (const Tensor& parameter : model->parameters()) run.parameters.push_back(parameter.detach());
  return run;
}

TEST(GradScalerTest, StepsAndScalesAreThoseOfOneDevice) {
  const Trained expected = train(make_mlp(), [](const Tensor& batch) { return batch; });
  EXPECT_EQ(expected.stepped, (std::vector<bool>{true, false, true, true, false, true}));
  EXPECT_EQ(expected.scales, (std::vector<double>{1024, 512, 512, 1024, 512, 512}));
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const Trained got =
        train(make_mlp(mesh, placed_as), [&](const Tensor& batch) { return distribute_batch(batch, mesh, placed_as); });
    EXPECT_EQ(got.stepped, expected.stepped);
    EXPECT_EQ(got.scales, expected.scales);
    expect_all_close(got.parameters, expected.parameters, "parameter");
  });
}

TEST(GradScalerTest, UnscaledGradientsAndWhatItCosts) {
  const auto dense = make_mlp();
  output_of(dense, numbers({5, 5})).pow(2).sum().backward();
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto model = make_mlp(mesh, placed_as);
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    GradScaler scaler;
    scaler.scale(output_of(model, distribute_batch(numbers({5, 5}), mesh, placed_as)).pow(2).sum()).backward();
    const CommRecorder recorder;
    scaler.unscale_(optimizer);
    EXPECT_LE(recorder.calls().size(), 1U) << recorder.to_string();
    expect_all_close(gradients_of(model), gradients_of(dense), "gradient");
  });
}

// Ranks that hold different parameters skip a step together.
TEST(GradScalerTest, AcrossRanksWithOtherParameters) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    const Tensor parameter = torch::ones({2}).requires_grad_();
    torch::optim::SGD optimizer({parameter}, 0.1);
    GradScaler scaler({.across = {mesh.group("pp")}});
    parameter.mutable_grad() = torch::full({2}, mesh.local_rank("pp") == 0 ? 1.0F : kInfinity);
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.current_scale(), 32768);
  });
}

TEST(GradScalerTest, StateGoesOn) {
  GradScaler scaler({.growth_interval = 2});
  scaler.set_state({.scale = 8, .growth_tracker = 1});
  const Tensor parameter = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({parameter}, 0.1);
  scaler.scale(parameter.sum()).backward();
  EXPECT_EQ(parameter.grad()[0].item<float>(), 8);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 16);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  scaler.update(3.0);
  EXPECT_EQ(scaler.current_scale(), 3);
}

TEST(GradScalerTest, TurnedOff) {
  GradScaler scaler({.enabled = false});
  const Tensor parameter = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({parameter}, 0.1);
  const Tensor loss = parameter.sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_FLOAT_EQ(parameter[0].item<float>(), 0.9F);
  EXPECT_EQ(scaler.current_scale(), 1);
}

TEST(GradScalerTest, Errors) {
  const auto text = [](const std::function<void()>& f) { return error_text<c10::Error>(f); };
  const Tensor parameter = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({parameter}, 0.1);
  GradScaler scaler;
  EXPECT_EQ(text([&] { scaler.step(optimizer); }),
            "GradScaler::step: no parameter of the optimizer has a gradient\n"
            "  help: scaler.scale(loss).backward() before the step");
  parameter.mutable_grad() = torch::ones({2});
  scaler.unscale_(optimizer);
  EXPECT_EQ(text([&] { scaler.unscale_(optimizer); }),
            "GradScaler::unscale_: the gradients were unscaled since the last update()\n"
            "  help: unscale_ once, then step, then update");
  scaler.step(optimizer);
  EXPECT_EQ(text([&] { scaler.step(optimizer); }),
            "GradScaler::step: the optimizer has stepped since the last update()\n"
            "  help: scaler.update() after the steps");
  scaler.update();
  EXPECT_EQ(text([&] { scaler.update(); }),
            "GradScaler::update: no optimizer has been unscaled or stepped since the last update()\n"
            "  help: scaler.step(optimizer) before update()");
  const Tensor half = torch::ones({2}, torch::kHalf).requires_grad_();
  half.mutable_grad() = torch::ones({2}, torch::kHalf);
  torch::optim::SGD of_half({half}, 0.1);
  EXPECT_EQ(text([&] { scaler.unscale_(of_half); }),
            "GradScaler::unscale_: a gradient is in float16, in which the scale does not help\n"
            "  help: keep the parameters in float32 and run the forward pass under autocast");
  EXPECT_EQ(value_error([] { GradScaler({.growth_factor = 1}); }),
            "GradScaler: growth_factor is out of range\n"
            "  growth_factor: 1\n"
            "  help: above 1, as in sherd::GradScalerOptions()");
}

// CPU autocast, of this thread.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(AutocastTest, IsThatOfOneDevice) {
  const Tensor batch = numbers({5, 5}, 3).to(torch::kFloat);
  const Tensor target = torch::tensor({0, 2, 1, 1, 0});
  const auto run = [](const torch::nn::Sequential& model, const Tensor& x, const Tensor& t) {
    Tensor loss;
    {
      const Autocast region;
      const Tensor y = output_of(model, x);
      EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
      loss = torch::nn::functional::cross_entropy(y, t);
      EXPECT_EQ(loss.scalar_type(), torch::kFloat);
    }
    loss.backward();
    return loss;
  };
  auto dense = make_mlp();
  dense->to(torch::kFloat);
  const Tensor expected = run(dense, batch, target);
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    auto model = make_mlp(mesh, placed_as);
    model->to(torch::kFloat);
    const Tensor got = run(model, distribute_batch(batch, mesh, placed_as), target);
    expect_close(got, expected, "loss", 0.02);
    for (const Tensor& gradient : gradients_of(model)) EXPECT_EQ(gradient.scalar_type(), torch::kFloat);
    expect_all_close(gradients_of(model), gradients_of(dense), "gradient", 0.02);
  });
}

}  // namespace
}  // namespace sherd::testing
