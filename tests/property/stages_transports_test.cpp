// Rings, experts and pipelines over transports other than memory that threads share: messages that cross each other,
// and connections that are made by the first call.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

class StagesTransportsTest : public ::testing::TestWithParam<WorldOptions> {};

TEST_P(StagesTransportsTest, ARing) {
  for (const int ranks : {2, 3}) {
    // 7 positions over 3 ranks: 3, 3, 1. Large enough that a message does not fit a transport's buffer.
    const Tensor x = numbers({1, 2, 7 * 64, 64}, 1);
    Tensor whole = x.clone().requires_grad_(true);
    torch::scaled_dot_product_attention(whole, whole, whole, {}, 0.0, true).square().sum().backward();
    spawn(
        ranks,
        [&](World&) {
          const DeviceMesh mesh = init_device_mesh("cpu", {ranks}, {"cp"});
          Tensor part = distribute_tensor(x, mesh, {Shard(2)}, {.source = std::nullopt}).requires_grad_(true);
          const ContextParallel scope(mesh);
          torch::scaled_dot_product_attention(part, part, part, {}, 0.0, true).square().sum().backward();
          EXPECT_LE((full_tensor(part.grad()) - whole.grad()).abs().max().item<double>(), 1e-10);
        },
        GetParam());
  }
}

TEST_P(StagesTransportsTest, APipelineWhoseMessagesCross) {
  for (const Schedule schedule : {Schedule::GPipe, Schedule::OneFOneB}) {
    const Tensor weight = numbers({256, 256}, 2).div(16);
    const Tensor input = numbers({512, 256}, 3);
    const auto loss_of = [](const Tensor& out, const Tensor& target) { return torch::mse_loss(out, target); };
    const Tensor whole = weight.clone().requires_grad_(true);
    loss_of(input.mm(whole).tanh().mm(whole).tanh().mm(whole).tanh(), input).backward();
    std::vector<Tensor> grads(3);
    spawn(
        3,
        [&](World& world) {
          const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"pp"});
          const Tensor own = weight.clone().requires_grad_(true);
          Pipeline pipeline([&](const Tensor& x) { return x.mm(own).tanh(); }, mesh,
                            {.schedule = schedule, .microbatches = 4});
          pipeline.step(input, input, loss_of);
          grads[static_cast<size_t>(world.rank())] = own.grad();
        },
        GetParam());
    EXPECT_LE((grads[0] + grads[1] + grads[2] - whole.grad()).abs().max().item<double>(), 1e-10);
  }
}

TEST_P(StagesTransportsTest, ExpertsOfWhomSomeAreIdle) {
  spawn(
      3,
      [&](World& world) {
        const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"ep"});
        const Tensor tokens = numbers({4, 5}, world.rank()).requires_grad_(true);
        const Tensor chosen = torch::full({4, 1}, 1);  // rank 1 has all the work
        const Tensor out =
            expert_parallel(tokens, chosen, torch::ones({4, 1}, torch::kDouble), mesh,
                            {.count = 3, .run = [](const ExpertBatch& batch) { return batch.tokens * batch.tokens; }});
        EXPECT_TRUE(out.equal(tokens * tokens));
        out.sum().backward();
        EXPECT_TRUE(tokens.grad().equal(2 * tokens));
      },
      GetParam());
}

TEST_P(StagesTransportsTest, AStageThatThrowsStopsTheOthers) {
  std::vector<std::string> texts(3);
  spawn(
      3,
      [&](World& world) {
        try {
          const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"pp"});
          const auto stage = [&](const Tensor& x) {
            TORCH_CHECK(world.rank() != 1, "no memory left for this");
            return x * 2;
          };
          Pipeline pipeline(stage, mesh, {.microbatches = 2});
          pipeline.step(torch::ones({4, 2}).requires_grad_(true), torch::ones({4, 2}),
                        [](const Tensor& out, const Tensor&) { return out.mean(); });
        } catch (const c10::Error& error) {
          texts[static_cast<size_t>(world.rank())] = error.what_without_backtrace();
        }
      },
      GetParam());
  for (const std::string& text : texts) EXPECT_NE(text.find("no memory left for this"), std::string::npos) << text;
}

// A message that begins where an earlier one began must not overwrite what leads there. Sizes around those in which a
// transport keeps messages.
TEST_P(StagesTransportsTest, MessagesOfOneSizeInARow) {
  spawn(
      2,
      [&](World& world) {
        const int other = 1 - world.rank();
        for (const int64_t size : {100, 16'000, 32'000, 32'752, 57'344}) {
          for (int i = 0; i < 20; ++i) {
            const Tensor out = torch::full({size}, 100.0 * world.rank() + i, torch::kDouble);
            const Tensor in = torch::empty({size}, torch::kDouble);
            Work sent = send(world.group(), out, other);
            receive(world.group(), in, other).wait();
            sent.wait();
            EXPECT_TRUE(in.eq(100.0 * other + i).all().item<bool>()) << size << ", message " << i;
          }
        }
      },
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shm, StagesTransportsTest, ::testing::Values(WorldOptions{.backend = "shm"}));
INSTANTIATE_TEST_SUITE_P(Gloo, StagesTransportsTest, ::testing::Values(WorldOptions{.backend = "gloo"}));
INSTANTIATE_TEST_SUITE_P(CheckedGloo, StagesTransportsTest,
                         ::testing::Values(WorldOptions{.backend = "gloo", .check = true}));

}  // namespace
}  // namespace sherd::testing
