// A GPT trained on a mesh has, at every step, the loss of the same GPT on one rank.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(TrainGptTextTest, BatchesFollowFromTheStepAlone) {
  const Corpus corpus(kText);
  const Batch one = corpus.batch(7, 4, 16), same = corpus.batch(7, 4, 16), other = corpus.batch(8, 4, 16);
  EXPECT_TRUE(one.inputs.equal(same.inputs));
  EXPECT_FALSE(one.inputs.equal(other.inputs));
  EXPECT_TRUE(one.inputs.narrow(1, 1, 15).equal(one.targets.narrow(1, 0, 15)));
}

}  // namespace
