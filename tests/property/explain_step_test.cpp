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
using ::testing::HasSubstr;

struct HeadImpl : nn::Module {
  HeadImpl() : up(register_module("up", nn::Linear(6, 10))) {}
  Tensor forward(const Tensor& x) { return up(x); }
  nn::Linear up;
};
TORCH_MODULE(Head);

TEST(ExplainStepTest, AWeightThatIsCutOtherwiseSparesTheMove) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    Head model = made([] { return Head(); });
    distribute_parameter_(model->up->weight, tp, {Shard(0)});
    distribute_parameter_(model->up->bias, tp, {Shard(0)});
    const Tensor x = distribute_tensor(numbers({8, 6}), tp, {Shard(0)});
    const StepExplanation explained = explain_step([&] { model->forward(x); }, *model);
    if (getenv("SHOW")) fputs(to_string(explained).c_str(), stderr);
    ASSERT_FALSE(explained.items.empty());
    const StepExplanation::Item& item = explained.items.front();
    EXPECT_EQ(item.operation, "aten::addmm");
    EXPECT_EQ(item.module, "up");
    ASSERT_EQ(item.operands.size(), 3u);
    EXPECT_EQ(item.operands[1], "f64[8@tp, 6]");
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
