// Every error of context, expert and pipeline parallelism, whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using ::testing::Each;
using ::testing::HasSubstr;
using Method = ContextParallelOptions::Method;

Tensor identity(const Tensor& x) { return x; }

TEST(StagesErrorsTest, AMeshOfTwoAxes) {
  const auto texts = errors_of_ranks(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
    const ContextParallel scope(mesh);
  });
  EXPECT_THAT(texts, Each(std::string("ContextParallel: takes a mesh of one axis\n"
                                      "  mesh: [dp=2, cp=2]\n"
                                      "  help: slice it: mesh[\"name\"]")));
}

TEST(StagesErrorsTest, HeadsThatDoNotDivide) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"cp"});
    const Tensor x = distribute_tensor(torch::ones({1, 3, 4, 2}), mesh, {Shard(2)});
    const ContextParallel scope(mesh, {.method = Method::all_to_all});
    torch::scaled_dot_product_attention(x, x, x);
  });
  EXPECT_THAT(texts, Each(std::string("ContextParallel: the heads of the query do not divide among the ranks\n"
                                      "  query: f32[1, 3, 4@cp, 2] on [cp=2]\n"
                                      "  heads: 3\n"
                                      "  ranks that would share them: 2\n"
                                      "  help: ContextParallel scope(mesh, {.method = "
                                      "ContextParallelOptions::Method::ring})")));
}

TEST(StagesErrorsTest, TheSecondDerivativeOfARing) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"cp"});
    const Tensor x = distribute_tensor(torch::ones({1, 2, 4, 2}), mesh, {Shard(2)}).requires_grad_(true);
    const ContextParallel scope(mesh);
    const Tensor out = torch::scaled_dot_product_attention(x, x, x).sum();
    torch::autograd::grad({out}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  });
  EXPECT_THAT(texts, Each(std::string("ContextParallel: attention on a ring has no second derivative\n"
                                      "  help: call the model outside of the scope for it, or use all_to_all")));
}

TEST(StagesErrorsTest, ADimThatIsNotThere) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"cp"});
    context_parallel_shard(torch::ones({4, 6}), mesh, 2);
  });
  EXPECT_THAT(texts, Each(std::string("context_parallel_shard: the tensor has no such dim\n"
                                      "  dim: 2\n"
                                      "  tensor: f32[4, 6]\n"
                                      "  help: the dim of the positions: 1 of [batch, length]")));
}

TEST(StagesErrorsTest, AnAxisThatTheTensorDoesNotHave) {
  const auto texts = errors_of_ranks(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
    const Tensor x = distribute_tensor(torch::ones({4, 6}), mesh["dp"], {Shard(0)});
    context_parallel_shard(x, mesh["cp"], 1);
  });
  EXPECT_THAT(texts, Each(HasSubstr("context_parallel_shard: the tensor's mesh does not have the axis\n")));
}

Experts doubling(int64_t count) {
  return {.count = count, .run = [](const ExpertBatch& batch) { return batch.tokens * 2; }};
}

TEST(StagesErrorsTest, AnExpertThatDoesNotExist) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"ep"});
    const Tensor chosen = torch::full({3, 1}, world.rank() == 1 ? 4 : 0);
    expert_parallel(torch::ones({3, 2}), chosen, torch::ones({3, 1}), mesh, doubling(4));
  });
  EXPECT_THAT(texts, Each(std::string("expert_parallel: a token chose an expert that does not exist\n"
                                      "  chosen: 4\n"
                                      "  rank: 1\n"
                                      "  experts: 4\n"
                                      "  help: numbers from 0 to 3")));
}

TEST(StagesErrorsTest, ChoicesWithoutWeights) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"ep"});
    expert_parallel(torch::ones({3, 2}), torch::zeros({3, 2}, torch::kLong), torch::ones({3, 1}), mesh, doubling(4));
  });
  EXPECT_THAT(texts, Each(std::string("expert_parallel: each token needs the numbers of its experts and a weight for "
                                      "each\n"
                                      "  tokens: f32[3, 2]\n"
                                      "  chosen: i64[3, 2]\n"
                                      "  weights: f32[3, 1]\n"
                                      "  help: auto [weights, chosen] = scores.softmax(-1).topk(2)")));
}

TEST(StagesErrorsTest, TokensThatAreNoMatrix) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"ep"});
    const Tensor chosen = torch::zeros({3, 1}, torch::kLong);
    expert_parallel(torch::ones({3, 2, 2}), chosen, torch::ones({3, 1}), mesh, doubling(4));
  });
  EXPECT_THAT(texts, Each(std::string("expert_parallel: tokens must be a matrix\n"
                                      "  tokens: f32[3, 2, 2]\n"
                                      "  help: tokens.flatten(0, -2)")));
}

TEST(StagesErrorsTest, AParameterWithoutARowForEachExpert) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"ep"});
    Experts experts = doubling(4);
    experts.parameters = {distribute_tensor(torch::ones({3, 2}), mesh, {Shard(0)})};
    expert_parallel(torch::ones({3, 2}), torch::zeros({3, 1}, torch::kLong), torch::ones({3, 1}), mesh, experts);
  });
  EXPECT_THAT(texts, Each(std::string("expert_parallel: a parameter must have one row for each expert, on the tokens' "
                                      "mesh\n"
                                      "  parameter: f32[3@ep, 2] on [ep=2]\n"
                                      "  mesh: [ep=2]\n"
                                      "  experts: 4\n"
                                      "  help: distribute_parameter_(parameter, mesh, placements) with Shard(0) on the "
                                      "axis")));
}

TEST(StagesErrorsTest, ExpertsThatReturnSomethingElse) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"ep"});
    const Experts experts{.count = 2, .run = [](const ExpertBatch& batch) { return batch.tokens.sum(0, true); }};
    expert_parallel(torch::ones({3, 2}), torch::zeros({3, 1}, torch::kLong), torch::ones({3, 1}), mesh, experts);
  });
  EXPECT_THAT(texts, Each(std::string("expert_parallel: the experts must return one row for each token\n"
                                      "  tokens: f32[3, 2]\n"
                                      "  returned: f32[1, 2]\n"
                                      "  help: Experts::run works on local tensors: [rows, width] -> [rows, width]")));
}

TEST(StagesErrorsTest, ExpertsAndTokensThatCannotBe) {
  const Tensor chosen = torch::zeros({4, 1}, torch::kLong);
  const auto texts = [&](const std::function<void(const DeviceMesh&)>& call) {
    return errors_of_ranks(2, [&](World&) { call(init_device_mesh("cpu", {2}, {"ep"})); });
  };
  EXPECT_THAT(texts([&](const DeviceMesh& mesh) {
                expert_parallel(torch::ones({4, 2}), chosen, torch::ones({4, 1}), mesh, doubling(0));
              }),
              Each(std::string("expert_parallel: there are no experts\n"
                               "  count: 0\n"
                               "  help: Experts{.count = 8, .run = function}")));
  EXPECT_THAT(texts([&](const DeviceMesh& mesh) {
                expert_parallel(torch::ones({4, 2}), chosen, torch::ones({4, 1}), mesh, doubling(4), {.capacity = -1});
              }),
              Each(std::string("expert_parallel: a capacity counts tokens\n"
                               "  capacity: -1\n"
                               "  help: ExpertParallelOptions{.capacity = 2 * tokens * choices / experts}")));
  EXPECT_THAT(texts([&](const DeviceMesh& mesh) {
                const Tensor weights = distribute_tensor(torch::ones({4, 1}), mesh, {Replicate()});
                expert_parallel(torch::ones({4, 2}), chosen, weights, mesh, doubling(4));
              }),
              Each(std::string("expert_parallel: tokens are plain and this is not\n"
                               "  tensor: f32[4, 1] on [ep=2]\n"
                               "  help: sherd::to_local(tensor)")));
}

TEST(StagesErrorsTest, TokensOnAMeshWithoutTheExpertsAxis) {
  const auto texts = errors_of_ranks(4, [](World&) {
    const DeviceMesh experts = init_device_mesh("cpu", {4}, {"ep"});
    const DeviceMesh other = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor tokens = distribute_tensor(torch::ones({4, 2}), other, {Shard(0), Replicate()});
    expert_parallel(tokens, torch::zeros({4, 1}, torch::kLong), torch::ones({4, 1}), experts, doubling(4));
  });
  EXPECT_THAT(texts, Each(std::string("expert_parallel: the tokens' mesh does not have the experts' axis\n"
                                      "  tokens: f32[4@dp, 2] on [dp=2, tp=2]\n"
                                      "  axis: [ep=4]\n"
                                      "  help: distribute the tokens on the mesh that the axis was sliced from")));
}

TEST(StagesErrorsTest, AStageThatMakesSomethingElseOfTheSecondMicrobatch) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    int64_t width = 2;
    Pipeline pipeline([&](const Tensor& x) { return x.slice(1, 0, ++width); }, mesh, {.microbatches = 2});
    pipeline.forward(torch::ones({4, 6}));
  });
  EXPECT_EQ(texts[0],
            "Pipeline: a stage must make the same of every microbatch\n"
            "  stage: 0\n"
            "  before: f32[2, 3]\n"
            "  now: f32[2, 4]\n"
            "  help: outputs of one shape, dtype and placement for inputs of one shape");
  EXPECT_NE(texts[1], "");
}

TEST(StagesErrorsTest, ABatchThatDoesNotDivide) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    Pipeline pipeline(identity, mesh, {.microbatches = 4});
    pipeline.forward(torch::ones({10, 3}));
  });
  EXPECT_THAT(texts, Each(std::string("Pipeline: 1 of 2 ranks failed\n"
                                      "  rank 0: Pipeline: the batch does not divide into microbatches of one size\n"
                                      "      input: f32[10, 3]\n"
                                      "      microbatches: 4\n"
                                      "      ranks that share the rows: 1\n"
                                      "      help: a batch of 12 rows, or fewer microbatches\n"
                                      "  help: mend what these ranks say; no rank went on")));
}

TEST(StagesErrorsTest, AShardedBatchThatDoesNotDivide) {
  const auto texts = errors_of_ranks(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"pp", "dp"});
    Pipeline pipeline(identity, mesh["pp"], {.microbatches = 3});
    pipeline.forward(distribute_tensor(torch::ones({9, 2}), mesh["dp"], {Shard(0)}));
  });
  EXPECT_THAT(texts, Each(HasSubstr("Pipeline: the batch does not divide into microbatches of one size\n"
                                    "      input: f32[9@dp, 2] on [dp=2]")));
  EXPECT_THAT(texts, Each(HasSubstr("help: a batch of 12 rows, or fewer microbatches")));
}

TEST(StagesErrorsTest, NoTarget) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    Pipeline pipeline(identity, mesh, {.microbatches = 2});
    pipeline.step(torch::ones({4, 3}), {}, [](const Tensor& out, const Tensor&) { return out.mean(); });
  });
  EXPECT_THAT(texts,
              Each(std::string("Pipeline: 1 of 2 ranks failed\n"
                               "  rank 1: Pipeline: the target must be a batch\n"
                               "      target: undefined\n"
                               "      help: a tensor whose dim 0 counts samples: input on the first rank, target "
                               "on the last\n"
                               "  help: mend what these ranks say; no rank went on")));
}

TEST(StagesErrorsTest, RanksWithDifferentOptions) {
  const auto texts = errors_of_ranks(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"pp"});
    const Pipeline pipeline(identity, mesh, {.microbatches = world.rank() == 2 ? 8 : 4});
  });
  EXPECT_THAT(texts, Each(std::string("Pipeline: the ranks have different options\n"
                                      "  rank 0: OneFOneB, 4 microbatches\n"
                                      "  rank 2: OneFOneB, 8 microbatches\n"
                                      "  help: the same PipelineOptions on every rank")));
}

TEST(StagesErrorsTest, NoMicrobatches) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"pp"});
    const Pipeline pipeline(identity, mesh, {.microbatches = 0});
  });
  EXPECT_THAT(texts, Each(std::string("Pipeline: there must be a microbatch\n"
                                      "  microbatches: 0\n"
                                      "  help: PipelineOptions{.microbatches = 8}")));
}

TEST(StagesErrorsTest, ALossOfManyNumbers) {
  const auto texts = errors_of_ranks(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"pp"});
    Pipeline pipeline(identity, mesh);
    pipeline.step(torch::ones({4, 3}), torch::ones({4, 3}), [](const Tensor& out, const Tensor&) { return out; });
  });
  EXPECT_THAT(texts, Each(std::string("Pipeline: the loss must be one number\n"
                                      "  loss: f32[4, 3]\n"
                                      "  help: the mean over the microbatch: loss.mean()")));
}

TEST(StagesErrorsTest, AnOutputOnThePipelinesOwnAxis) {
  const auto texts = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    Pipeline pipeline([&](const Tensor&) { return sherd::ones({4, 2}, mesh, {Replicate()}); }, mesh);
    pipeline.forward(torch::ones({4, 2}));
  });
  EXPECT_EQ(texts[0],
            "Pipeline: what leaves a stage must lie on the stage's own ranks\n"
            "  output: f32[4, 2] on [pp=2]\n"
            "  pipeline: [pp=2] of [pp=2]\n"
            "  help: put the stage on the other axes of one mesh with names: mesh[{\"dp\", \"tp\"}]");
  EXPECT_THAT(texts[1], HasSubstr("what leaves a stage must lie on the stage's own ranks"));
}

TEST(StagesErrorsTest, AStageThatThrowsStopsAllOthers) {
  for (int failing = 0; failing < 3; ++failing) {
    for (const Schedule schedule : {Schedule::GPipe, Schedule::OneFOneB}) {
      const auto texts = errors_of_ranks(3, [&](World& world) {
        const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"pp"});
        int calls = 0;
        const Tensor weight = torch::ones({2, 2}).requires_grad_(true);
        const auto stage = [&](const Tensor& x) {
          TORCH_CHECK(world.rank() != failing || ++calls < 3, "the third microbatch is too much for rank ", failing);
          return x.mm(weight);
        };
        Pipeline pipeline(stage, mesh, {.schedule = schedule, .microbatches = 4});
        pipeline.step(torch::ones({4, 2}), torch::ones({4, 2}),
                      [](const Tensor& out, const Tensor&) { return out.mean(); });
      });
      EXPECT_THAT(texts, Each(HasSubstr("the third microbatch is too much for rank " + std::to_string(failing))));
    }
  }
}

}  // namespace
}  // namespace sherd::testing
