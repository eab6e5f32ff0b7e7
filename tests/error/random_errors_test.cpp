#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/dtensor.h"
#include "sherd/random.h"

namespace sherd::testing {
namespace {

using at::Tensor;

// The same text on both ranks, "" where they differ.
std::string on_both(const std::function<void(const DeviceMesh&, Tensor&)>& body) {
  const auto errors = errors_of_ranks(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    Tensor x = zeros({4, 6}, mesh, {Shard(0)});
    body(mesh, x);
  });
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0] == errors[1] ? errors[0] : "";
}

TEST(RandomErrorsTest, RanksInDifferentStatesAreNamedWithTheirStates) {
  const auto errors = errors_of_ranks(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
    manual_seed(world.rank() == 2 ? 8 : 7);
    rand({4}, mesh, {Shard(0), Replicate()});
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "uniform_: the ranks' generators are in different states\n"
              "  mesh: [2, 2]\n"
              "  rank 0: seed 7, 0 draws\n"
              "  rank 2: seed 8, 0 draws\n"
              "  other than rank 0: ranks 2\n"
              "  mode: by_position\n"
              "  help: sherd::manual_seed(seed) with the same seed on every rank; all of them draw alike");
  }
}

// A rank that draws more than the others is found at the next draw where calls are compared.
TEST(RandomErrorsTest, ARankThatDrewMoreIsFoundWhereCallsAreCompared) {
  const auto errors = errors_of_ranks(2,
                                      [&](World& world) {
                                        const DeviceMesh mesh = init_device_mesh("cpu", {2});
                                        rand({4}, mesh, {Shard(0)});
                                        if (world.rank() == 1) default_generator().set_offset(5);
                                        rand({4}, mesh, {Shard(0)});
                                      },
                                      {.check = true});
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 1: seed 67280421310721, 5 draws"), std::string::npos);
}

TEST(RandomErrorsTest, AGeneratorOfAnotherMesh) {
  EXPECT_EQ(on_both([](const DeviceMesh& mesh, Tensor& x) {
              const DeviceMesh other = init_device_mesh("cpu", {1, 2}, {"a", "b"});
              x.uniform_(0, 1, Generator(mesh, 3));  // its own
              x.uniform_(0, 1, Generator(other, 3));
            }),
            "uniform_: the generator is of another mesh\n  generator: [a=1, b=2]\n  tensor: [2]\n"
            "  help: sherd::Generator(seed), which serves every mesh");
}

TEST(RandomErrorsTest, AGeneratorOfTorch) {
  EXPECT_EQ(on_both([](const DeviceMesh&, Tensor& x) { x.uniform_(0, 1, at::detail::createCPUGenerator(1)); }),
            "uniform_: the generator is not sherd's, and ranks may share it or not have it\n"
            "  generator: torch's, for cpu\n"
            "  help: sherd::Generator(seed), or sherd::Generator(seed, sherd::RngMode::torch_exact) for the numbers of "
            "torch's");
}

TEST(RandomErrorsTest, ParametersOutOfRange) {
  using Body = std::function<void(Tensor&)>;
  const std::vector<std::pair<std::string, Body>> cases = {
      {"normal_: the standard deviation is below 0\n  given: -1\n  help: std >= 0",
       [](Tensor& x) { x.normal_(0, -1); }},
      {"cauchy_: the scale is not above 0\n  given: 0\n  help: sigma > 0", [](Tensor& x) { x.cauchy_(0, 0); }},
      {"exponential_: the rate is not above 0\n  given: -2\n  help: lambda > 0", [](Tensor& x) { x.exponential_(-2); }},
      {"geometric_: the probability is not inside (0, 1)\n  given: 1.5\n  help: 0 < p < 1",
       [](Tensor& x) { x.geometric_(1.5); }},
      {"uniform_: from is above to\n  given: 2\n  help: uniform_(0, 1)", [](Tensor& x) { x.uniform_(2, 1); }},
      {"bernoulli_: the probability is outside [0, 1]\n  given: 1.5\n  help: 0 <= p <= 1",
       [](Tensor& x) { x.bernoulli_(1.5); }},
      {"bernoulli: a probability is outside [0, 1]\n  help: 0 <= p <= 1", [](Tensor& x) { torch::bernoulli(x + 2); }},
      {"random_: the range is empty\n  given: [5, 5)\n  help: from < to", [](Tensor& x) { x.random_(5, 5); }},
      {"poisson: a rate is below 0\n  help: numbers from 0 on", [](Tensor& x) { torch::poisson(x - 1); }},
      {"normal: a standard deviation is below 0\n  help: std >= 0", [](Tensor& x) { at::normal(x, x - 1); }},
      {"dropout: the probability is outside [0, 1]\n  p: -0.1\n  help: 0 <= p <= 1",
       [](Tensor& x) { torch::dropout(x, -0.1, true); }},
      {"native_dropout: the probability is outside [0, 1]\n  p: 2\n  help: 0 <= p <= 1",
       [](Tensor& x) { torch::native_dropout(x, 2, true); }},
      {"rrelu: lower is above upper\n  given: 2, 1\n  help: lower <= upper",
       [](Tensor& x) { torch::rrelu_with_noise(x, x, 2, 1, true); }},
      {"multinomial: more samples than categories\n  given: 7 samples of 6 categories\n"
       "  help: replacement = true, or fewer samples",
       [](Tensor& x) { torch::multinomial(x + 1, 7); }},
      {"multinomial: a row has no weight above 0\n  help: one weight above 0 in every row",
       [](Tensor& x) { torch::multinomial(x, 2); }},
      {"multinomial: a weight is negative, infinite or not a number\n  help: weights from 0 on",
       [](Tensor& x) { torch::multinomial(x - 1, 2); }},
      {"multinomial: no sample is asked for\n  given: 0\n  help: num_samples >= 1",
       [](Tensor& x) { torch::multinomial(x + 1, 0); }},
  };
  for (const auto& [text, body] : cases) {
    EXPECT_EQ(on_both([&](const DeviceMesh&, Tensor& x) { body(x); }), text);
  }
}

TEST(RandomErrorsTest, OffsetBasedIsForCuda) {
  EXPECT_EQ(on_both([](const DeviceMesh&, Tensor& x) {
              manual_seed(1, RngMode::offset_based);
              x.uniform_();
            }),
            "uniform_: RngMode::offset_based draws as PyTorch's DTensor does on CUDA\n  tensor: on cpu\n"
            "  help: sherd::RngMode::by_position");
}

TEST(RandomErrorsTest, DtypesThatDoNotFit) {
  const auto errors =
      errors_of_ranks(2, [](World&) { zeros({4}, init_device_mesh("cpu", {2}), {Shard(0)}, at::kLong).normal_(); });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(errors[0], "normal_: not for this dtype\n  dtype: Long\n  help: draw in float32 and convert: .to(dtype)");
}

TEST(RandomErrorsTest, BytesThatAreNoState) {
  Generator generator(1);
  const std::vector<uint8_t> nonsense = {1, 2, 3};
  EXPECT_EQ(value_error([&] { generator.set_state(nonsense); }),
            "set_state: these bytes are no state of a sherd generator\n  help: generator.set_state(other.state())");
  std::vector<uint8_t> cut = generator.state();
  cut.pop_back();
  EXPECT_EQ(value_error([&] { generator.set_state(cut); }),
            "set_state: these bytes are no state of a sherd generator\n  help: generator.set_state(other.state())");
  EXPECT_EQ(generator.seed(), 1) << "a state that is refused changes nothing";
  EXPECT_EQ(value_error([&] { Generator(at::detail::createCPUGenerator(1)); }),
            "Generator: this generator is not sherd's\n  help: sherd::Generator(seed)");
}

TEST(RandomErrorsTest, OperatorsThatAreNotDrawn) {
  EXPECT_EQ(error_text<c10::NotImplementedError>([] { at::_standard_gamma(torch::ones({3}), Generator(1)); }),
            "_standard_gamma: sherd's generators do not draw this\n"
            "  help: leave the generator out: torch draws from its own");
}

}  // namespace
}  // namespace sherd::testing
