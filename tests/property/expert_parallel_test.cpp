// A mixture of experts whose experts lie on several ranks equals the same mixture on one device, gradients included.

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

struct Sample {
  int64_t tokens = 12, width = 3, hidden = 5, experts = 4, choices = 2;
  std::optional<int64_t> capacity = {};
  bool lopsided = false;  // every token wants the last expert
};

struct Model {
  Tensor tokens, chosen, weights, up, down;
};

Model model_of(const Sample& s) {
  const Tensor scores = numbers({s.tokens, s.experts}, 9);
  Tensor chosen = std::get<1>(scores.topk(s.choices, 1));
  if (s.lopsided) chosen = torch::full_like(chosen, s.experts - 1);
  return {numbers({s.tokens, s.width}, 1), chosen, numbers({s.tokens, s.choices}, 2).abs(),
          numbers({s.experts, s.width, s.hidden}, 3), numbers({s.experts, s.hidden, s.width}, 4)};
}

void want_grads(Model& model) {
  for (Tensor* tensor : {&model.tokens, &model.weights, &model.up, &model.down}) tensor->requires_grad_(true);
}

struct Answer {
  Tensor output;
  std::vector<Tensor> grads;
};

Answer answer_of(const Model& model, const Tensor& output) {
  (output * numbers(output.sizes(), 7)).sum().backward();
  return {output.detach(), {model.tokens.grad(), model.weights.grad(), model.up.grad(), model.down.grad()}};
}

Tensor expert(const Tensor& tokens, const Tensor& up, const Tensor& down) {
  return torch::gelu(tokens.mm(up)).mm(down);
}

// Token by token, choice by choice.
Answer on_one_device(const Sample& s) {
  Model model = model_of(s);
  want_grads(model);
  std::vector<int64_t> taken(static_cast<size_t>(s.experts), 0);
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < s.tokens; ++t) {
    Tensor row = torch::zeros({1, s.width}, torch::kDouble);
    for (int64_t c = 0; c < s.choices; ++c) {
      const auto e = model.chosen[t][c].item<int64_t>();
      if (s.capacity && taken[static_cast<size_t>(e)]++ >= *s.capacity) continue;
      row = row + model.weights[t][c] * expert(model.tokens.narrow(0, t, 1), model.up[e], model.down[e]);
    }
    rows.push_back(row);
  }
  // Where nothing is chosen, gradients are zero rather than missing.
  const Tensor nothing = 0 * (model.tokens.sum() + model.weights.sum() + model.up.sum() + model.down.sum());
  return answer_of(model, torch::cat(rows) + nothing);
}

// Leaves experts without tokens alone: their parameters take no part on that rank.
Tensor run_experts(const ExpertBatch& batch) {
  std::vector<Tensor> outputs;
  for (int64_t e = 0; e < batch.experts(); ++e) {
    const Tensor tokens = batch.tokens_of(e);
    if (tokens.size(0) > 0) outputs.push_back(expert(tokens, batch.parameters[0][e], batch.parameters[1][e]));
  }
  return outputs.empty() ? torch::zeros_like(batch.tokens).detach() : torch::cat(outputs);
}

void expect_equal(const Answer& got, const Answer& expected) {
  const auto near = [](const Tensor& a, const Tensor& b, const std::string& what) {
    ASSERT_TRUE(a.defined()) << what;
    const Tensor whole = is_dtensor(a) ? full_tensor(a) : a;
    ASSERT_EQ(whole.sizes(), b.sizes()) << what;
    EXPECT_LE((whole - b).abs().max().item<double>(), 1e-10) << what;
  };
  near(got.output, expected.output, "output");
  const char* const names[] = {"tokens", "weights", "up", "down"};
  for (size_t i = 0; i < expected.grads.size(); ++i) near(got.grads[i], expected.grads[i], names[i]);
}

void check(const Sample& sample, const std::string& mesh_text, const Placements& tokens) {
  SCOPED_TRACE(mesh_text + to_string(tokens));
  const Answer expected = on_one_device(sample);
  const Mesh ranks = parse_mesh(mesh_text);
  spawn(static_cast<int>(ranks.size()), [&](World&) {
    const DeviceMesh mesh("cpu", ranks);
    Placements by_expert(tokens.size(), Replicate());
    by_expert[static_cast<size_t>(ranks.axis("ep"))] = Shard(0);
    Model model = model_of(sample);
    for (Tensor* tensor : {&model.tokens, &model.chosen, &model.weights}) {
      *tensor = distribute_tensor(*tensor, mesh, tokens, {.source = std::nullopt});
    }
    for (Tensor* tensor : {&model.up, &model.down}) {
      *tensor = distribute_tensor(*tensor, mesh, by_expert, {.source = std::nullopt});
    }
    want_grads(model);
    const Experts experts{.count = sample.experts, .run = run_experts, .parameters = {model.up, model.down}};
    const Tensor output =
        expert_parallel(model.tokens, model.chosen, model.weights, mesh["ep"], experts, {.capacity = sample.capacity});
    expect_equal(answer_of(model, output), expected);
  });
}

TEST(ExpertParallelTest, EqualsOneDevice) {
  for (const char* mesh : {"[ep=1]", "[ep=2]", "[ep=3]", "[ep=4]"}) check({}, mesh, {Shard(0)});
  check({.choices = 1}, "[ep=2]", {Shard(0)});
  check({.experts = 8, .choices = 3}, "[ep=4]", {Shard(0)});
}

TEST(ExpertParallelTest, UnevenTokensAndExpertsAndNoneAtAll) {
  check({.tokens = 7}, "[ep=3]", {Shard(0)});
  check({.tokens = 5, .experts = 5}, "[ep=4]", {Shard(0)});                // 2, 2, 1, 0 of each
  check({.tokens = 3, .experts = 2, .choices = 1}, "[ep=4]", {Shard(0)});  // ranks without experts
  check({.lopsided = true}, "[ep=3]", {Shard(0)});
}

TEST(ExpertParallelTest, DropsWhatIsOverCapacityInTheOrderOfTheTokens) {
  for (const int64_t capacity : {0, 1, 3, 100}) {
    check({.capacity = capacity}, "[ep=3]", {Shard(0)});
    check({.tokens = 8, .capacity = capacity, .lopsided = true}, "[dp=2, ep=2]", {Shard(0), Shard(0)});
    check({.tokens = 8, .capacity = capacity, .lopsided = true}, "[ep=2, dp=2]", {Shard(0), Shard(0)});
  }
}

TEST(ExpertParallelTest, BesideOtherAxes) {
  check({}, "[dp=2, ep=2]", {Shard(0), Shard(0)});
  check({.lopsided = true}, "[dp=2, ep=2]", {Shard(0), Shard(0)});
  check({}, "[ep=2, tp=2]", {Shard(0), Replicate()});
  check({}, "[ep=2, tp=2]", {Shard(0), Shard(1)});
  check({}, "[dp=2, ep=2]", {Shard(0), Replicate()});
  check({}, "[ep=2]", {Replicate()});
  check({.tokens = 2, .choices = 1}, "[dp=2, ep=2]", {Shard(0), Shard(0)});  // parts of the batch leave experts idle
}

TEST(ExpertParallelTest, TokensOfARanksOwn) {
  const Sample sample;
  const Answer expected = on_one_device(sample);
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"ep"});
    Model model = model_of(sample);
    for (Tensor* tensor : {&model.tokens, &model.chosen, &model.weights}) {
      *tensor = tensor->narrow(0, 6 * world.rank(), 6).clone();
    }
    for (Tensor* tensor : {&model.up, &model.down}) *tensor = distribute_tensor(*tensor, mesh, {Shard(0)});
    want_grads(model);
    const Tensor output = expert_parallel(model.tokens, model.chosen, model.weights, mesh,
                                          {.count = 4, .run = run_experts, .parameters = {model.up, model.down}});
    const auto mine = [&](const Tensor& whole) { return whole.narrow(0, 6 * world.rank(), 6); };
    const Tensor seeds = mine(numbers({12, 3}, 7));
    (output * seeds).sum().backward();
    EXPECT_LE((output - mine(expected.output)).abs().max().item<double>(), 1e-10);
    EXPECT_LE((model.tokens.grad() - mine(expected.grads[0])).abs().max().item<double>(), 1e-10);
    EXPECT_LE((model.weights.grad() - mine(expected.grads[1])).abs().max().item<double>(), 1e-10);
    EXPECT_LE((full_tensor(model.up.grad()) - expected.grads[2]).abs().max().item<double>(), 1e-10);
    EXPECT_LE((full_tensor(model.down.grad()) - expected.grads[3]).abs().max().item<double>(), 1e-10);
  });
}

TEST(ExpertParallelTest, OnlyTokensTravelAndOnlyToTheirExperts) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"ep"});
    // Each token stays on its rank.
    const Tensor tokens = numbers({4, 3}, 1);
    const Tensor chosen = torch::full({4, 1}, world.rank());
    const CommRecorder recorder;
    expert_parallel(tokens, chosen, torch::ones({4, 1}, torch::kDouble), mesh,
                    {.count = 2, .run = [](const ExpertBatch& batch) { return batch.tokens * 2; }});
    for (const CollectiveCall& call : recorder.calls()) {
      if (call.name == "all_to_all") {
        EXPECT_EQ(call.bytes, 0);
      }
    }
    EXPECT_LE(recorder.bytes(), 64) << recorder.to_string();
  });
}

// A module that is written once for one device and for many.
class MixtureImpl : public torch::nn::Module {
 public:
  MixtureImpl()
      : gate(register_module("gate", torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)))),
        up(register_parameter("up", numbers({4, 3, 5}, 3))),
        down(register_parameter("down", numbers({4, 5, 3}, 4))) {
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    gate->weight.copy_(numbers({4, 3}, 2));
  }
  Tensor forward(const Tensor& x, const DeviceMesh& axis) {
    auto [weights, chosen] = gate(x).softmax(-1).topk(2);
    return expert_parallel(x, chosen, weights, axis, {.count = 4, .run = run_experts, .parameters = {up, down}});
  }
  torch::nn::Linear gate;
  Tensor up, down;
};
TORCH_MODULE(Mixture);

TEST(ExpertParallelTest, AModuleTrainsAsOnOneRank) {
  const auto train = [](Mixture model, const DeviceMesh& mesh) {
    Placements rows(static_cast<size_t>(mesh.ndim()), Shard(0));
    distribute_module(model, mesh, [&](const std::string& name, const Tensor&) {
      Placements placements(rows.size(), Replicate());
      if (name == "up" || name == "down") placements[static_cast<size_t>(mesh.mesh().axis("ep"))] = Shard(0);
      return placements;
    });
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
    std::vector<double> losses;
    for (int64_t step = 0; step < 20; ++step) {
      const Tensor x = distribute_tensor(numbers({8, 3}, step), mesh, rows, {.source = std::nullopt});
      optimizer.zero_grad();
      const Tensor loss = (model->forward(x, mesh["ep"]) - x).square().mean();
      loss.backward();
      optimizer.step();
      losses.push_back(full_tensor(loss.detach()).item<double>());
    }
    return losses;
  };
  std::vector<double> alone;
  Mixture one;
  spawn(1, [&](World&) { alone = train(one, init_device_mesh("cpu", {1}, {"ep"})); });
  ASSERT_LT(alone.back(), alone.front());
  for (const char* text : {"[ep=2]", "[dp=2, ep=2]"}) {
    const Mesh ranks = parse_mesh(text);
    std::vector<Mixture> copies;
    for (int64_t i = 0; i < ranks.size(); ++i) copies.emplace_back();
    spawn(static_cast<int>(ranks.size()), [&](World& world) {
      const auto losses = train(copies[static_cast<size_t>(world.rank())], DeviceMesh("cpu", ranks));
      for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(losses[i], alone[i], 1e-10) << text << " step " << i;
    });
  }
}

}  // namespace
}  // namespace sherd::testing
