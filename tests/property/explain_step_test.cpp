// explain_step: what is moved, and what would spare it.

#include "sherd/explain_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "property/train_alike.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Pair;

struct MlpImpl : nn::Module {
  MlpImpl()
      : up(register_module("up", nn::Linear(nn::LinearOptions(6, 8).bias(false)))),
        down(register_module("down", nn::Linear(nn::LinearOptions(8, 6).bias(false)))) {}
  Tensor forward(const Tensor& x) { return down(torch::relu(up(x))); }
  nn::Linear up, down;
};
TORCH_MODULE(Mlp);

struct Case {
  Placement up, down;  // of the weights
};

StepExplanation explained(const DeviceMesh& tp, const Case& how) {
  Mlp model = made([] { return Mlp(); });
  distribute_parameter_(model->up->weight, tp, {how.up});
  distribute_parameter_(model->down->weight, tp, {how.down});
  const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Replicate()});
  return explain_step([&] { model->forward(x); }, *model);
}

TEST(ExplainStepTest, AWeightThatIsCutOtherwiseSparesTheMove) {
  for (const int ranks : {2, 3}) {
    spawn(ranks, [&](World&) {
      const DeviceMesh tp = init_device_mesh("cpu", {ranks}, {"tp"});
      const StepExplanation wrong = explained(tp, {Shard(0), Shard(0)});
      ASSERT_EQ(wrong.items.size(), 1u) << to_string(wrong);
      const StepExplanation::Item& item = wrong.items.front();
      EXPECT_EQ(item.module, "down");
      EXPECT_EQ(item.pass, CommPass::forward);
      EXPECT_THAT(item.parameters, ElementsAre("down.weight"));
      EXPECT_THAT(item.operands, ElementsAre("f64[4, 8@tp]", "f64[8, 6@tp]"));
      EXPECT_EQ(item.moved, 1) << "the weight is smaller than what it is multiplied with";
      EXPECT_EQ(item.moved_to, "f64[8@tp, 6]");
      EXPECT_THAT(item.collectives, ElementsAre(Pair("all_to_all@tp", 1)));
      EXPECT_EQ(item.instead,
                "down.weight as (S(1)), not (S(0)): then nothing moves here, and the result is Partial, to be summed "
                "later");
      EXPECT_EQ(wrong.bytes, item.bytes);
      // The advice is right.
      EXPECT_EQ(explained(tp, {Shard(0), Shard(1)}).bytes, 0);
    });
  }
}

TEST(ExplainStepTest, TheDearestComesFirst) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    auto model = made([] { return nn::Sequential(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 6)); });
    parallelize_module(*model, mesh["tp"], {{"0", ColwiseParallel()}, {"2", RowwiseParallel()}});
    fully_shard(model, mesh["dp"]);
    const Tensor x = distribute_tensor(numbers({4, 6}), mesh["dp"], {Shard(0)});
    const StepExplanation step = explain_step([&] { model->forward(x).pow(2).sum().backward(); }, *model);
    std::set<std::string> operations;
    int64_t sum = 0;
    int64_t calls = 0;
    int64_t before = std::numeric_limits<int64_t>::max();
    for (const StepExplanation::Item& item : step.items) {
      EXPECT_LE(item.bytes, before);
      EXPECT_FALSE(item.why.empty());
      before = item.bytes;
      sum += item.bytes;
      for (const auto& [name, count] : item.collectives) calls += count;
      operations.insert(item.operation);
    }
    EXPECT_EQ(sum, step.bytes);
    EXPECT_EQ(calls, step.calls);
    EXPECT_THAT(operations, IsSupersetOf({"gather on use", "gradient bucket", "tensor parallel"})) << to_string(step);
    const auto json = nlohmann::json::parse(to_json(step));
    EXPECT_EQ(json["bytes"], step.bytes);
    EXPECT_EQ(json["items"].size(), step.items.size());
  });
}

TEST(ExplainStepTest, ASumIsNeeded) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor a = distribute_tensor(numbers({4, 6}), tp, {Shard(1)});
    const Tensor b = distribute_tensor(numbers({6, 4}), tp, {Shard(0)});
    const StepExplanation step = explain_step([&] { a.mm(b).exp(); });
    ASSERT_EQ(step.items.size(), 1u);
    EXPECT_EQ(to_string(step),
              "the step receives 128 B in 1 collective, the most first\n\n"
              "1. 128 B: all_reduce@tp for aten::exp, forward\n"
              "   operands: f64[4, 4] P(sum)@tp\n"
              "   moved:    operand 0, f64[4, 4] P(sum)@tp -> f64[4, 4]\n"
              "   why:      operand 0 is a sum of which each rank of tp has a part, and this operator wants the sum\n"
              "   instead:  redistribute it to a Shard where it is made: a reduce_scatter is half of an all_reduce\n");
  });
}

TEST(ExplainStepTest, WhatTheStepThrowsGoesThrough) {
  spawn(2, [](World&) {
    EXPECT_THROW(explain_step([] { throw std::runtime_error("no data"); }), std::runtime_error);
    const CommDebugMode after;
    EXPECT_TRUE(after.records().empty());
  });
}

TEST(ExplainStepTest, NothingIsSaid) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({8, 6}), tp, {Shard(0)});
    const StepExplanation explained = explain_step([&] { x.relu(); });
    EXPECT_EQ(to_string(explained), "the step communicates nothing\n");
    EXPECT_TRUE(nlohmann::json::parse(to_json(explained))["items"].empty());
  });
}

}  // namespace
}  // namespace sherd::testing
