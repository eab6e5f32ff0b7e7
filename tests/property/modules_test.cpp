// Unchanged torch::nn modules on a sharded batch, with weights that are sharded themselves, give the outputs, gradients
// and buffers of one device.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

struct Result {
  Tensor output;
  std::vector<Tensor> gradients;
  std::vector<Tensor> buffers;
};

using Forward = std::function<Tensor(const std::vector<Tensor>&)>;

Result run(nn::Module& module, const Forward& forward, const std::vector<Tensor>& inputs) {
  Result result;
  result.output = forward(inputs);
  (result.output * numbers(result.output.sizes(), 5)).sum().backward();
  for (const Tensor& parameter : module.parameters()) result.gradients.push_back(parameter.grad());
  for (const Tensor& buffer : module.buffers()) result.buffers.push_back(buffer);
  return result;
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (!got.defined()) return;
  const Tensor whole = is_dtensor(got) ? full_tensor(got) : got;
  EXPECT_TRUE(torch::allclose(whole.to(torch::kDouble), expected.to(torch::kDouble), 1e-9, 1e-9)) << what;
}

// `make` makes a module; `call` runs one. Weights are numbers of their own, so that every copy has the same.
template <class Make, class Call>
void check(const Make& make, const std::vector<Tensor>& inputs, const Call& call) {
  const auto ready = [&] {
    static std::mutex one_at_a_time;  // constructors draw from torch's one generator
    const std::lock_guard lock(one_at_a_time);
    auto module = make();
    module->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    int64_t salt = 0;
    for (const Tensor& parameter : module->parameters()) parameter.copy_(numbers(parameter.sizes(), ++salt));
    return module;
  };
  auto dense = ready();
  const Result expected = run(
      *dense, [&](const std::vector<Tensor>& t) { return call(dense, t); }, inputs);
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    for (const auto& [sharded, cut_dim] : {std::pair(true, -1), {false, -1}, {true, 0}, {false, 1}}) {
      auto module = ready();
      distribute_module(*module, mesh, [&](const std::string& name, const Tensor& tensor) -> Placements {
        const bool statistic = name.find("running") != std::string::npos;
        if (cut_dim < 0 || cut_dim >= tensor.dim() || statistic) return {Replicate()};
        return {Shard(cut_dim)};
      });
      std::vector<Tensor> parts;
      for (const Tensor& input : inputs) {
        parts.push_back(distribute_tensor(input, mesh, {sharded ? Placement(Shard(0)) : Placement(Replicate())}));
      }
      const Result got = run(
          *module, [&](const std::vector<Tensor>& t) { return call(module, t); }, parts);
      const std::string how = std::string(sharded ? "batch" : "nothing") + " cut, weights " + std::to_string(cut_dim);
      expect_close(got.output, expected.output, "output, " + how);
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        expect_close(got.gradients[i], expected.gradients[i], "gradient " + std::to_string(i) + ", " + how);
      }
      for (size_t i = 0; i < expected.buffers.size(); ++i) {
        expect_close(got.buffers[i], expected.buffers[i], "buffer " + std::to_string(i) + ", " + how);
      }
    }
  });
}

const auto kFirst = [](auto& module, const std::vector<Tensor>& t) { return module->forward(t[0]); };
const auto kFirstOfTwo = [](auto& module, const std::vector<Tensor>& t) { return std::get<0>(module->forward(t[0])); };

TEST(ModulesTest, Linear) {
  check([] { return nn::Linear(6, 5); }, {numbers({5, 6})}, kFirst);
  check([] { return nn::Bilinear(4, 5, 3); }, {numbers({4, 4}), numbers({4, 5}, 1)},
        [](auto& module, const std::vector<Tensor>& t) { return module->forward(t[0], t[1]); });
}

TEST(ModulesTest, Convolutions) {
  check([] { return nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)); }, {numbers({5, 3, 6, 6})}, kFirst);
  check([] { return nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2).groups(2)); }, {numbers({4, 4, 9})}, kFirst);
  check([] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 2)); }, {numbers({4, 3, 4, 4})}, kFirst);
}

TEST(ModulesTest, Norms) {
  check([] { return nn::BatchNorm2d(3); }, {numbers({4, 3, 5, 5})}, kFirst);
  check([] { return nn::BatchNorm1d(3); }, {numbers({5, 3})}, kFirst);
  check([] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true)); }, {numbers({4, 3, 5, 5})}, kFirst);
  check([] { return nn::GroupNorm(3, 6); }, {numbers({5, 6, 4})}, kFirst);
  check([] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, {numbers({5, 6})}, kFirst);
}

TEST(ModulesTest, Recurrent) {
  check([] { return nn::LSTM(nn::LSTMOptions(4, 5).batch_first(true)); }, {numbers({4, 3, 4})}, kFirstOfTwo);
  check([] { return nn::GRU(nn::GRUOptions(4, 5).batch_first(true)); }, {numbers({4, 3, 4})}, kFirstOfTwo);
  check([] { return nn::RNN(nn::RNNOptions(4, 5).batch_first(true).bidirectional(true).num_layers(2)); },
        {numbers({4, 3, 4})}, kFirstOfTwo);
}

TEST(ModulesTest, Attention) {
  check([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2)); }, {numbers({4, 4, 8})},
        [](auto& module, const std::vector<Tensor>& t) { return std::get<0>(module->forward(t[0], t[0], t[0])); });
  check(
      [] {
        return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
      },
      {numbers({4, 4, 8})}, kFirst);
}

TEST(ModulesTest, Lookups) {
  const Tensor ids = torch::arange(12).mul(7).remainder(10).view({4, 3});
  check([] { return nn::Embedding(10, 6); }, {ids}, kFirst);
  check([] { return nn::EmbeddingBag(10, 6); }, {ids}, kFirst);
}

TEST(ModulesTest, Sequences) {
  check(
      [] {
        return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 4, 3)), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2),
                              nn::AvgPool2d(2), nn::Flatten(), nn::Linear(4, 7), nn::Softmax(1));
      },
      {numbers({4, 3, 6, 6})}, kFirst);
  check(
      [] {
        const auto larger = nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kBilinear);
        return nn::Sequential(nn::Upsample(nn::UpsampleOptions(larger).align_corners(false)), nn::ReflectionPad2d(1),
                              nn::AdaptiveAvgPool2d(3), nn::PixelShuffle(2), nn::LocalResponseNorm(2), nn::Flatten(),
                              nn::Linear(36, 3));
      },
      {numbers({4, 4, 4, 4})}, kFirst);
  check(
      [] {
        return nn::Sequential(nn::Linear(6, 6), nn::GELU(), nn::SiLU(), nn::ELU(), nn::PReLU(), nn::Softplus(),
                              nn::LeakyReLU(), nn::LogSigmoid(), nn::GLU(), nn::Mish(), nn::CELU(), nn::Softsign());
      },
      {numbers({5, 6})}, kFirst);
}

TEST(ModulesTest, Losses) {
  check([] { return nn::Linear(6, 5); }, {numbers({5, 6})},
        [](auto& module, const std::vector<Tensor>& t) {
          const Tensor x = module->forward(t[0]);
          const Tensor target = torch::sigmoid(x).detach();
          return F::l1_loss(x, target) + F::mse_loss(x, target) + F::smooth_l1_loss(x, target) +
                 F::binary_cross_entropy_with_logits(x, target) + F::cross_entropy(x, target.argmax(1)) +
                 F::kl_div(torch::log_softmax(x, 1), torch::softmax(target, 1),
                           F::KLDivFuncOptions(torch::kBatchMean)) +
                 F::cosine_similarity(x, target).mean() + F::soft_margin_loss(x, torch::sign(target)) +
                 F::poisson_nll_loss(x, target) + F::pairwise_distance(x, target).sum() +
                 F::triplet_margin_loss(x, target, target * 2) + F::multilabel_soft_margin_loss(x, target);
        });
}

}  // namespace
}  // namespace sherd::testing
