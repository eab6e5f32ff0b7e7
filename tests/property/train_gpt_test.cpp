// A GPT trained on a mesh has, at every step, the loss of the same GPT on one rank.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.h"
#include "sherd/checkpoint.h"
#include "sherd/dtensor.h"
#include "sherd/random.h"
#include "sherd/world.h"
#include "train.h"

namespace {

constexpr int kSteps = 20;

TrainOptions small_options(const Corpus& corpus) {
  return {.model = {.vocabulary = corpus.vocabulary(), .layers = 2, .width = 32, .heads = 4, .length = 16},
          .batch = 4,
          .dtype = at::kDouble};
}

class TrainGptTest : public testing::TestWithParam<std::string> {};

TEST_P(TrainGptTest, LossIsThatOfOneRankAtEveryStep) {
  const Corpus corpus(kText);
  const TrainOptions options = small_options(corpus);
  const Gpt model = make_model(options);
  const sherd::Mesh mesh = sherd::parse_mesh(GetParam());
  std::vector<Gpt> copies;
  for (int64_t rank = 0; rank < mesh.size(); ++rank) copies.push_back(copy_model(model, options));

  std::vector<double> alone;
  Trainer reference(model, corpus, options, at::kCPU);
  for (int step = 0; step < kSteps; ++step) alone.push_back(reference.step());
  ASSERT_LT(alone.back(), 0.9 * alone.front()) << "it does not learn";

  std::vector<std::vector<double>> losses(copies.size());
  sherd::spawn(static_cast<int>(mesh.size()), [&](sherd::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Trainer sharded(copies[rank], corpus, options, sherd::DeviceMesh("cpu", mesh));
    for (int step = 0; step < kSteps; ++step) losses[rank].push_back(sharded.step());
  });
  for (const auto& curve : losses) {
    EXPECT_EQ(curve, losses.front()) << "ranks disagree";
    EXPECT_THAT(relative_differences(curve, alone), testing::Each(testing::Le(1e-10)));
  }
}

// [dp=3] cuts a batch of four into 2, 2 and 0 rows; [tp=3] cuts between the elements of a head.
INSTANTIATE_TEST_SUITE_P(Meshes, TrainGptTest,
                         testing::Values("[dp=2, tp=2]", "[dp=2]", "[tp=2]", "[tp=4]", "[tp=2, dp=2]", "[dp=3]",
                                         "[tp=3]"),
                         [](const auto& each) { return "Mesh" + std::to_string(each.index); });

// A run on some ranks: half of it on one mesh, and the rest, from a checkpoint, in a model with other weights on
// another.
struct Halves {
  std::string first, second;
  bool first_is_fully_sharded = false, second_is_fully_sharded = false;
};

class TrainGptResumeTest : public testing::TestWithParam<Halves> {};

TEST_P(TrainGptResumeTest, ACheckpointGoesOnOnAnotherMesh) {
  const Corpus corpus(kText);
  TrainOptions options = small_options(corpus);
  options.warmup = kSteps;  // so that the step counts
  options.model.dropout = 0.1;
  TrainOptions others = options;
  others.seed += 1;
  const Halves& halves = GetParam();
  const sherd::testing::TempFolder folder;
  const std::string checkpoint = folder.path() / "checkpoint";
  const auto run = [&](const std::string& text, bool fully_sharded, bool resumes, int64_t until) {
    const sherd::Mesh ranks = sherd::parse_mesh(text);
    TrainOptions mine = options;
    mine.fully_sharded = fully_sharded;
    std::vector<Gpt> models;
    for (int64_t rank = 0; rank < ranks.size(); ++rank) models.push_back(make_model(resumes ? others : options));
    std::vector<double> losses;
    sherd::spawn(static_cast<int>(ranks.size()), [&](sherd::World& world) {
      sherd::manual_seed(resumes ? 1 : 5);
      Trainer trainer(models[static_cast<size_t>(world.rank())], corpus, mine, sherd::DeviceMesh("cpu", ranks));
      if (resumes) {
        auto state = trainer.state();
        sherd::load(state, checkpoint);
        trainer.go_on_from(state);
      }
      while (trainer.steps() < until) {
        const double loss = trainer.step();
        if (world.rank() == 0) losses.push_back(loss);
      }
      if (!resumes) sherd::save(trainer.state(), checkpoint);
    });
    return losses;
  };
  const auto expected = run("[dp=1]", false, /*resumes=*/false, kSteps);
  auto losses = run(halves.first, halves.first_is_fully_sharded, /*resumes=*/false, kSteps / 2);
  const auto rest = run(halves.second, halves.second_is_fully_sharded, /*resumes=*/true, kSteps);
  losses.insert(losses.end(), rest.begin(), rest.end());
  ASSERT_EQ(losses.size(), expected.size());
  EXPECT_THAT(relative_differences(losses, expected), testing::Each(testing::Le(1e-10)));
}

INSTANTIATE_TEST_SUITE_P(Meshes, TrainGptResumeTest,
                         testing::Values(Halves{"[dp=2, tp=2]", "[dp=4, tp=1]"},
                                         Halves{"[dp=4]", "[dp=2, tp=2]", true, true},
                                         Halves{"[dp=2, tp=2]", "[dp=3]", true, false},
                                         Halves{"[tp=3]", "[dp=1]", false, true}),
                         [](const auto& each) { return "Case" + std::to_string(each.index); });

TEST(TrainGptTextTest, BatchesFollowFromTheStepAlone) {
  const Corpus corpus(kText);
  const Batch one = corpus.batch(7, 4, 16), same = corpus.batch(7, 4, 16), other = corpus.batch(8, 4, 16);
  EXPECT_TRUE(one.inputs.equal(same.inputs));
  EXPECT_FALSE(one.inputs.equal(other.inputs));
  EXPECT_TRUE(one.inputs.narrow(1, 1, 15).equal(one.targets.narrow(1, 0, 15)));
}

// A run that draws its weights and its dropout on the mesh.
struct DrawnRun {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;  // at the start
  std::vector<at::Tensor> masks;    // of a few draws at the end
  uint64_t draws = 0;
};

DrawnRun train_with_dropout(const std::string& mesh_text, at::ScalarType dtype) {
  const Corpus corpus(kText);
  TrainOptions options = small_options(corpus);
  options.model.dropout = 0.2;
  options.dtype = dtype;
  const Gpt model = make_model(options);
  const sherd::Mesh ranks = sherd::parse_mesh(mesh_text);
  std::vector<Gpt> copies;
  for (int64_t rank = 0; rank < ranks.size(); ++rank) copies.push_back(copy_model(model, options));
  std::vector<DrawnRun> runs(copies.size());
  sherd::spawn(static_cast<int>(ranks.size()), [&](sherd::World& world) {
    DrawnRun& run = runs[static_cast<size_t>(world.rank())];
    const sherd::DeviceMesh mesh("cpu", ranks);
    sherd::manual_seed(5);
    Trainer trainer(copies[static_cast<size_t>(world.rank())], corpus, options, mesh);
    for (at::Tensor& parameter : trainer.model()->parameters()) {
      if (parameter.dim() > 1) torch::nn::init::normal_(parameter, 0, 0.1);
      run.weights.push_back(sherd::full_tensor(parameter.detach()).clone());
    }
    for (int step = 0; step < kSteps; ++step) run.losses.push_back(trainer.step());
    run.draws = sherd::default_generator().offset();
    const at::Tensor ones = sherd::ones({8, 16}, mesh, batch_placements(ranks), dtype);
    for (int i = 0; i < 3; ++i) run.masks.push_back(sherd::full_tensor(torch::dropout(ones, 0.2, true)));
  });
  for (const DrawnRun& run : runs) EXPECT_EQ(run.losses, runs.front().losses) << "ranks disagree";
  return runs.front();
}

TEST(TrainGptDropoutTest, EveryMeshDrawsTheSameWeightsAndMasks) {
  for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-10}, {at::kFloat, 1e-4}}) {
    const DrawnRun one = train_with_dropout("[dp=1]", dtype);
    ASSERT_LT(one.losses.back(), 0.95 * one.losses.front()) << "it does not learn";
    // The weights, and two layers of three dropouts in every step.
    EXPECT_GE(one.draws, kSteps * 6U);
    for (const char* mesh : {"[dp=4]", "[tp=4]", "[dp=2, tp=2]", "[dp=3]", "[tp=3]"}) {
      const DrawnRun run = train_with_dropout(mesh, dtype);
      EXPECT_EQ(run.draws, one.draws) << mesh;
      for (size_t i = 0; i < one.weights.size(); ++i) EXPECT_TRUE(run.weights[i].equal(one.weights[i])) << mesh << i;
      for (size_t i = 0; i < one.masks.size(); ++i) EXPECT_TRUE(run.masks[i].equal(one.masks[i])) << mesh << i;
      EXPECT_THAT(relative_differences(run.losses, one.losses), testing::Each(testing::Le(bound))) << mesh;
    }
  }
}

}  // namespace
