// Averages of parameters lie as the parameters do and are those of one device.

#include "sherd/ema.h"

#include "error/rank_errors.h"
#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;

void change(const std::vector<Tensor>& parameters, double by) {
  const torch::NoGradGuard no_grad;
  for (const Tensor& parameter : parameters) parameter.mul_(by).add_(by);
}

TEST(EmaTest, AveragesAreThoseOfOneDevice) {
  const auto dense = make_mlp();
  std::vector<Tensor> expected;
  for (const Tensor& parameter : dense->parameters()) expected.push_back(parameter.detach().clone());
  for (const double by : {0.5, -1.25, 2.0}) {
    change(dense->parameters(), by);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = 0.75 * expected[i] + 0.25 * dense->parameters()[i].detach();
    }
  }
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto model = make_mlp(mesh, placed_as);
    ExponentialMovingAverage average(model->parameters(), 0.75);
    const CommRecorder recorder;
    for (const double by : {0.5, -1.25, 2.0}) {
      change(model->parameters(), by);
      average.update();
    }
    EXPECT_EQ(average.updates(), 3);
    {
      const auto scope = average.applied();
      EXPECT_EQ(recorder.calls().size(), 0U) << recorder.to_string();
      expect_all_close(model->parameters(), expected, "average");
      EXPECT_TRUE(model->parameters()[0].requires_grad());
    }
    expect_all_close(model->parameters(), dense->parameters(), "parameter");
    expect_all_close(average.averages(), expected, "average");
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(placements_of(average.averages()[i]), placements_of(model->parameters()[i]));
      EXPECT_FALSE(average.averages()[i].requires_grad());
    }
  });
}

TEST(EmaTest, AScopeThatIsHandedOnSwapsOnce) {
  const Tensor parameter = torch::ones({2}).requires_grad_();
  ExponentialMovingAverage average({parameter}, 0.5);
  change({parameter}, 3);
  {
    auto scope = average.applied();
    const auto other = std::move(scope);
    EXPECT_EQ(parameter[0].item<float>(), 1);
  }
  EXPECT_EQ(parameter[0].item<float>(), 6);
}

TEST(EmaTest, Errors) {
  EXPECT_EQ(value_error([] { ExponentialMovingAverage({torch::ones({2})}, 1.5); }),
            "ExponentialMovingAverage: the decay is outside [0, 1]\n"
            "  decay: 1.5\n"
            "  help: sherd::ExponentialMovingAverage(model->parameters(), 0.999)");
  EXPECT_EQ(value_error([] {
              ExponentialMovingAverage({torch::ones({2}), Tensor()}, 0.5);
            }),
            "ExponentialMovingAverage: a parameter is undefined\n"
            "  parameter: 1\n"
            "  help: average what module->parameters() returns");
  ExponentialMovingAverage average({torch::ones({2})}, 0.5);
  const auto scope = average.applied();
  EXPECT_EQ(error_text<c10::Error>([&] { average.update(); }),
            "ExponentialMovingAverage::update: the averages are applied to the parameters\n"
            "  help: end the scope that applied() returned before the next step");
  EXPECT_EQ(error_text<c10::Error>([&] { auto again = average.applied(); }),
            "ExponentialMovingAverage::applied: the averages are applied already\n"
            "  help: keep one scope: auto scope = average.applied();");
}

}  // namespace
}  // namespace sherd::testing
