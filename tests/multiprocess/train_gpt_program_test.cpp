// The program train_gpt: it trains alike under every launcher, goes on where it was stopped, on another mesh too, and
// says on every rank what is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "multiprocess/training_run.h"

namespace sherd {
namespace {

using testing::Command;
using ::testing::ContainsRegex;
using ::testing::Each;
using testing::EndlessRun;
using ::testing::HasSubstr;
using testing::losses_in;
using testing::Ranks;
using testing::read_text;
using testing::run_command;
using testing::operator+;
using testing::split_lines;
using testing::TempFolder;
using testing::under_sherd_run;
using testing::Words;

const std::string kProgram = SHERD_BINARY_DIR "/bin/train_gpt";

Words small(const std::string& out) {
  return {kProgram, "--layers",      "1", "--width", "16",      "--heads",   "4",   "--length",
          "8",      "--batch",       "4", "--dtype", "float64", "--dropout", "0.1", "--warmup",
          "3",      "--print-every", "1", "--out",   out};
}

/// What one process without a launcher has.
std::vector<double> losses_alone(size_t steps) {
  const TempFolder folder;
  const auto result = run_command(small(folder.path()) + Words{"--steps", std::to_string(steps)});
  EXPECT_EQ(result.code, 0) << result.err;
  return losses_in(folder.path());
}

void expect_losses(const std::string& out, size_t steps) {
  const auto got = losses_in(out);
  const auto expected = losses_alone(steps);
  ASSERT_EQ(got.size(), steps);
  ASSERT_EQ(expected.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    // A run that is stopped by a signal may have come far on a busy machine; rounding errors grow on the way.
    const double bound = i < 50 ? 1e-10 : 1e-6;
    EXPECT_NEAR(got[i], expected[i], bound * expected[i]) << "step " << i + 1;
  }
}

TEST(TrainGptProgramTest, TheSameCommandGoesOnAndTheCurveIsThatOfOneRank) {
  const TempFolder folder;
  const Words program = small(folder.path());
  const auto first = run_command(under_sherd_run(4, program + Words{"--dp", "2", "--tp", "2", "--steps", "3"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("on mesh [dp=2, tp=2]: cpu, float64, 4 sequences of 8 characters a step\n"));
  EXPECT_THAT(first.out, ContainsRegex("step 3/3  loss [0-9.]+  [0-9]+ tokens/s\n"));
  // Rank 0 alone speaks.
  for (const auto& line : split_lines(first.out)) EXPECT_TRUE(line.starts_with("[0] ")) << line;

  const auto again = run_command(under_sherd_run(4, program + Words{"--dp", "2", "--tp", "2", "--steps", "3"}));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("3 steps are done"));
  // The file that the run left says the same as its flags.
  const auto other_mesh = run_command(under_sherd_run(
      4, {kProgram, "--config", folder.path() / "config.json", "--dp", "4", "--tp", "1", "--fsdp", "--steps", "6"}));
  ASSERT_EQ(other_mesh.code, 0) << other_mesh.err;
  EXPECT_THAT(other_mesh.out,
              HasSubstr("going on after step 3, from " + (folder.path() / "checkpoints/step-3").string()));
  expect_losses(folder.path(), 6);
}

TEST(TrainGptProgramTest, SigtermSavesAndTheNextRunGoesOnOnAnotherMesh) {
  const TempFolder folder;
  const Words program = small(folder.path());
  EndlessRun run(under_sherd_run(4, program + Words{"--dp", "2", "--tp", "2", "--save-every", "1000000"}),
                 folder.path(), 3);
  run.command.signal(SIGTERM);
  ASSERT_EQ(run.command.wait(), 0) << run.command.err();
  std::smatch match;
  const std::string out = run.command.out();
  ASSERT_TRUE(std::regex_search(out, match,
                                std::regex("stopped by SIGTERM after step (\\d+), which is saved; "
                                           "to go on, run the same again:\n\\[0\\]   .*train_gpt ")))
      << out;
  const size_t done = std::stoul(match[1]);
  EXPECT_EQ(losses_in(folder.path()).size(), done);

  const auto rest =
      run_command(under_sherd_run(4, program + Words{"--dp", "4", "--tp", "1", "--steps", std::to_string(done + 3)}));
  ASSERT_EQ(rest.code, 0) << rest.err;
  expect_losses(folder.path(), done + 3);
}

TEST(TrainGptProgramTest, AnInterruptSavesToo) {
  const TempFolder folder;
  EndlessRun run(small(folder.path()), folder.path(), 2);
  run.command.signal(SIGINT);
  EXPECT_EQ(run.command.wait(), 128 + SIGINT);
  const auto steps = std::to_string(losses_in(folder.path()).size());
  EXPECT_THAT(run.command.out(), HasSubstr("stopped by SIGINT after step " + steps));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "checkpoints" / ("step-" + steps)));
}

// Rows of steps after the last checkpoint are in the file already, the last of them perhaps in part.
TEST(TrainGptProgramTest, StepsThatAreMadeAgainAreNotInTheFileTwice) {
  const TempFolder folder;
  const Words program = small(folder.path()) + Words{"--save-every", "4"};
  {
    EndlessRun run(under_sherd_run(2, program), folder.path(), 10);
    run.command.signal(SIGKILL);
    run.command.wait();
  }
  std::ofstream(folder.path() / "metrics.csv", std::ios::app) << "1000,0.12";
  const size_t done = split_lines(read_text(folder.path() / "metrics.csv")).size() - 2;
  const auto rest = run_command(under_sherd_run(2, program + Words{"--steps", std::to_string(done + 8)}));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("going on after step "));
  expect_losses(folder.path(), done + 8);
}

TEST(TrainGptProgramTest, RunsUnderTorchrun) {
  if (std::string(SHERD_TORCHRUN).empty()) GTEST_SKIP() << "no torchrun";
  const TempFolder folder;
  const auto result =
      run_command(Words{SHERD_TORCHRUN, "--nproc-per-node", "4", "--master-port", testing::free_port(), "--no-python"} +
                  small(folder.path()) + Words{"--tp", "2", "--fsdp", "--steps", "3"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("on mesh [dp=2, tp=2], fully sharded: "));
  expect_losses(folder.path(), 3);
}

TEST(TrainGptProgramTest, RunsUnderMpirun) {
  if (std::string(SHERD_MPIRUN).empty()) GTEST_SKIP() << "no mpirun";
  const TempFolder folder;
  const auto result =
      run_command(Words{"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                        "OMPI_MCA_rmaps_base_oversubscribe=1", "OMP_NUM_THREADS=1", SHERD_MPIRUN, "-n", "4"} +
                  small(folder.path()) + Words{"--dp", "4", "--steps", "3"});
  ASSERT_EQ(result.code, 0) << result.err;
  expect_losses(folder.path(), 3);
}

TEST(TrainGptProgramTest, WhatDoesNotFitIsSaidOnEveryRank) {
  const TempFolder folder;
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--dp", "2", "--tp", "2"},
       "train_gpt: the mesh has another number of ranks than were started\n"
       "  mesh: [dp=2, tp=2], 4 ranks\n"
       "  started: 3\n"
       "  help: sherd run -n 4 -- train_gpt --dp 2 --tp 2\n"},
      {{"--dp", "3"},
       "train_gpt: the batch cannot be shared out evenly\n"
       "  batch: 4 sequences\n"
       "  dp: 3 ranks\n"
       "  help: --batch 6\n"},
      {{"--tp", "3", "--heads", "3"},
       "train_gpt: the heads do not divide the width\n"
       "  width: 16\n"
       "  heads: 3\n"
       "  help: --width 18\n"},
      {{"--tp", "3", "--dtype", "bfloat16"},
       "train_gpt: bfloat16 is for weights that are gathered when they are used\n"
       "  --dtype: bfloat16\n"
       "  help: --fsdp --dtype bfloat16\n"},
      {{"--tp", "3", "--text", "/no/such/text"},
       "train_gpt: the text cannot be read, or is empty\n"
       "  --text: /no/such/text\n"
       "  help: the path of a text file, or none for the story that is built in\n"},
      {{"--tp", "3", "--out", "/proc/no/such"},
       "train_gpt: the folder cannot be written\n"
       "  file: /proc/no/such/config.json\n"
       "  help: --out FOLDER\n"}};
  for (const auto& [flags, message] : cases) {
    const Ranks ranks(3, 3, small(folder.path()) + flags);
    EXPECT_THAT(ranks.codes, Each(1));
    EXPECT_THAT(ranks.err, Each(message));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "metrics.csv"));
}

TEST(TrainGptProgramTest, AnotherArchitectureCannotGoOn) {
  const TempFolder folder;
  ASSERT_EQ(run_command(small(folder.path()) + Words{"--steps", "2"}).code, 0);
  const std::string rows = read_text(folder.path() / "metrics.csv");
  const Ranks ranks(2, 2, small(folder.path()) + Words{"--width", "32", "--layers", "2", "--steps", "4"});
  EXPECT_THAT(ranks.codes, Each(1));
  EXPECT_THAT(ranks.err, Each("train_gpt: the checkpoints are of another architecture\n"
                              "  checkpoints: " +
                              folder.path().string() +
                              ", the last of step 2\n"
                              "  other: layers: 1, here 2\n"
                              "  other: width: 16, here 32\n"
                              "  help: the settings that it began with, or another --out\n"));
  // Another text has other characters; what it began with is still there.
  std::ofstream(folder.path() / "text") << "abcabcabcabcabcabc";
  const Ranks other(2, 2, small(folder.path()) + Words{"--text", folder.path() / "text", "--steps", "4"});
  EXPECT_THAT(other.codes, Each(1));
  EXPECT_THAT(other.err, Each(HasSubstr("tokens.weight")));
  EXPECT_EQ(read_text(folder.path() / "metrics.csv"), rows);
  EXPECT_EQ(run_command(small(folder.path()) + Words{"--steps", "4"}).code, 0);
  expect_losses(folder.path(), 4);
}

TEST(TrainGptProgramTest, RanksWithDifferentSettingsSaySo) {
  const TempFolder folder;
  const std::string by_rank = "exec " + kProgram + " --tp 2 --seed $RANK --out " + folder.path().string();
  const Ranks ranks(2, 2, {"sh", "-c", by_rank});
  EXPECT_THAT(ranks.codes, Each(1));
  EXPECT_THAT(ranks.err, Each(HasSubstr("train_gpt: ranks have different settings\n")));
  EXPECT_THAT(ranks.err, Each(HasSubstr("\"seed\": 1,\n")));
}

TEST(TrainGptProgramTest, BadSettingsAreExplained) {
  const TempFolder folder;
  const std::string file = folder.path() / "config.json";
  const auto with_file = [&](const std::string& text) {
    std::ofstream(file) << text;
    return run_command({kProgram, "--config", file});
  };
  const auto unknown = with_file("{\"widht\": 32}");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err,
            "train_gpt: --config: there is no such setting\n"
            "  setting: widht\n"
            "  help: train_gpt --help lists them; learning_rate in the file is --learning-rate\n");
  const auto no_json = with_file("width = 32");
  EXPECT_EQ(no_json.code, 2);
  EXPECT_THAT(no_json.err, HasSubstr("train_gpt: --config: the file is not an object of JSON\n"));
  const auto no_number = with_file("{\"learning_rate\": \"fast\"}");
  EXPECT_EQ(no_number.code, 2);
  EXPECT_THAT(no_number.err, HasSubstr("--learning-rate"));
  EXPECT_EQ(run_command({kProgram, "--config", "/no/such/file"}).code, 2);
  EXPECT_EQ(run_command({kProgram, "--steps", "0"}).code, 2);
  EXPECT_EQ(run_command({kProgram, "--no-such-flag"}).code, 2);
  const auto help = run_command({kProgram, "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--learning-rate"));
}

}  // namespace
}  // namespace sherd
