// The programs train_resnet and train_gpt --model rotary: the loop is train_gpt's, whose own test has the rest.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "multiprocess/training_run.h"

namespace sherd {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using testing::EndlessRun;
using ::testing::HasSubstr;
using testing::losses_in;
using testing::Ranks;
using testing::run_command;
using testing::operator+;
using testing::TempFolder;
using testing::under_sherd_run;
using testing::Words;

struct Model {
  std::string name;
  Words program;        // a small one, in float64
  std::string counted;  // by the second
  std::string first_line;
};

const Model kResNet{"ResNet",
                    {SHERD_BINARY_DIR "/bin/train_resnet", "--width", "4", "--size", "8", "--classes", "4", "--batch",
                     "8", "--dtype", "float64", "--print-every", "1"},
                    "images",
                    "a ResNet-8 of 5112 weights on mesh [dp=2, tp=2]: cpu, float64, 8 images of 8 x 8 a step\n"};
const Model kRotary{
    "Rotary",
    {SHERD_BINARY_DIR "/bin/train_gpt", "--model", "rotary", "--layers", "1", "--width", "16", "--heads", "4",
     "--length", "8", "--batch", "4", "--dtype", "float64", "--dropout", "0.1", "--print-every", "1"},
    "tokens",
    "on mesh [dp=2, tp=2]: cpu, float64, 4 sequences of 8 characters a step\n"};

class ModelsProgramTest : public ::testing::TestWithParam<Model> {};

TEST_P(ModelsProgramTest, GoesOnOnAnotherMeshWithTheCurveOfOneRank) {
  const Model& model = GetParam();
  const TempFolder folder, other;
  const Words program = model.program + Words{"--out", folder.path()};
  const auto first = run_command(under_sherd_run(4, program + Words{"--tp", "2", "--steps", "3"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr(model.first_line));
  EXPECT_THAT(first.out, ContainsRegex("step 3/3  loss [0-9.]+  [0-9]+ " + model.counted + "/s\n"));
  const auto second = run_command(under_sherd_run(4, {model.program[0], "--config", folder.path() / "config.json",
                                                      "--dp", "4", "--tp", "1", "--fsdp", "--steps", "6"}));
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("going on after step 3, from "));

  const auto alone = run_command(model.program + Words{"--steps", "6", "--out", other.path()});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto got = losses_in(folder.path(), model.counted), expected = losses_in(other.path(), model.counted);
  ASSERT_EQ(got.size(), 6U);
  ASSERT_EQ(expected.size(), 6U);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], expected[i], 1e-10 * expected[i]) << "step " << i + 1;
}

TEST_P(ModelsProgramTest, SigtermSaves) {
  const Model& model = GetParam();
  const TempFolder folder;
  EndlessRun run(under_sherd_run(2, model.program + Words{"--out", folder.path(), "--save-every", "1000000"}),
                 folder.path(), 2);
  run.command.signal(SIGTERM);
  ASSERT_EQ(run.command.wait(), 0) << run.command.err();
  const auto steps = std::to_string(losses_in(folder.path(), model.counted).size());
  EXPECT_THAT(run.command.out(), HasSubstr("stopped by SIGTERM after step " + steps));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "checkpoints" / ("step-" + steps)));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsProgramTest, ::testing::Values(kResNet, kRotary),
                         [](const auto& each) { return each.param.name; });

TEST(ModelsProgramErrorsTest, WhatDoesNotFitIsSaidOnEveryRank) {
  const TempFolder folder;
  struct Case {
    Words program;
    std::string message;
  };
  for (const auto& [program, message] : {Case{kResNet.program + Words{"--dp", "3"},
                                              "train_resnet: the batch cannot be shared out evenly\n"
                                              "  batch: 8 images\n"
                                              "  dp: 3 ranks\n"
                                              "  help: --batch 9\n"},
                                         Case{kRotary.program + Words{"--tp", "3", "--kv-heads", "3"},
                                              "train_gpt: the heads of keys and values do not divide those of queries\n"
                                              "  heads: 4\n"
                                              "  kv heads: 3\n"
                                              "  help: --kv-heads 1\n"},
                                         Case{kRotary.program + Words{"--tp", "3", "--width", "20"},
                                              "train_gpt: rotary positions turn pairs, and a head has an odd number "
                                              "of elements\n"
                                              "  width / heads: 5\n"
                                              "  help: --width 24\n"}}) {
    const Ranks ranks(3, 3, program + Words{"--out", folder.path()});
    EXPECT_THAT(ranks.codes, Each(1));
    EXPECT_THAT(ranks.err, Each(message));
  }
}

TEST(ModelsProgramErrorsTest, AnotherModelCannotGoOn) {
  const TempFolder folder;
  ASSERT_EQ(run_command(kRotary.program + Words{"--steps", "1", "--out", folder.path()}).code, 0);
  const auto other = run_command(kRotary.program + Words{"--model", "gpt", "--steps", "2", "--out", folder.path()});
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(other.err,
            "train_gpt: the checkpoints are of another architecture\n"
            "  checkpoints: " +
                folder.path().string() +
                ", the last of step 1\n"
                "  other: model: \"rotary\", here \"gpt\"\n"
                "  help: the settings that it began with, or another --out\n");
}

}  // namespace
}  // namespace sherd
