// The `sherd` command itself, and its verbs that only print.

#include "command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sherd {
namespace {

using testing::read_text;
using testing::run_command;
using testing::sherd_command;
using testing::split_lines;

// The words of a command line; double quotes hold words together.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::vector<std::string> split(std::string text, const std::string& between) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find(between)) != std::string::npos; text.erase(0, at + between.size())) {
    words.push_back(text.substr(0, at));
  }
  words.push_back(text);
  return words;
}

// "run, layout, ...": as the command names them itself.
std::string all_verbs() {
  const auto lines = split_lines(run_command(sherd_command({"fly"})).err);
  const std::string before = "  verbs: ";
  return lines.size() > 2 && lines[2].starts_with(before) ? lines[2].substr(before.size()) : "";
}

TEST(CommandTest, HelpNamesEveryVerbAndShowsExamples) {
  const auto help = run_command(sherd_command({"--help"}));
  EXPECT_EQ(help.code, 0);
  for (const char* word : {"usage: sherd", "examples:"}) EXPECT_NE(help.out.find(word), std::string::npos) << word;
  EXPECT_NE(all_verbs().find("inspect, "), std::string::npos);
  for (const std::string& verb : split(all_verbs(), ", ")) {
    EXPECT_NE(help.out.find("\n  " + verb + " "), std::string::npos) << verb;
    const auto verb_help = run_command(sherd_command({verb, "--help"}));
    EXPECT_EQ(verb_help.code, 0);
    EXPECT_NE(verb_help.out.find(std::string("usage: sherd ") + verb), std::string::npos);
    EXPECT_NE(verb_help.out.find("examples:"), std::string::npos);
  }
}

TEST(CommandTest, HelpOfAVerbIsItsOwn) {
  EXPECT_EQ(run_command(sherd_command({"help", "layout"})).out, run_command(sherd_command({"layout", "--help"})).out);
  EXPECT_EQ(run_command(sherd_command({"help", "fly"})).code, 2);
}

TEST(CommandTest, OutputThatCannotBeWrittenIsAnError) {
  const auto result = run_command({"sh", "-c", SHERD_BINARY_DIR "/bin/sherd --help > /dev/full"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "sherd: the output could not be written\n");
}

TEST(CommandTest, VersionIsTheProjects) {
  const auto lines = split_lines(run_command(sherd_command({"--version"})).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "sherd " SHERD_VERSION);
  EXPECT_TRUE(lines[1].starts_with("formats: ")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("build: ")) << lines[2];
}

TEST(CommandTest, BadUsageExitsWithTwo) {
  EXPECT_EQ(run_command(sherd_command({})).code, 2);
  const auto unknown = run_command(sherd_command({"fly"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err, "sherd: no such verb\n  verb: fly\n  verbs: " + all_verbs() + "\n  help: sherd --help\n");
  EXPECT_EQ(run_command(sherd_command({"layout", "f32[4]"})).code, 2);
  EXPECT_EQ(run_command(sherd_command({"layout", "f32[4", "--mesh", "[2]"})).code, 2);
  EXPECT_EQ(run_command(sherd_command({"layout", "f32[4@x]", "--mesh", "[dp=2]"})).code, 2);
}

TEST(CommandTest, LoadsNoLibtorch) {
  const auto libraries = run_command({"ldd", SHERD_BINARY_DIR "/bin/sherd"});
  EXPECT_EQ(libraries.code, 0);
  EXPECT_EQ(libraries.out.find("torch"), std::string::npos) << libraries.out;
}

TEST(CommandTest, LayoutListsTheBoxOfEachRank) {
  const auto result = run_command(sherd_command({"layout", "f32[5@dp, 4@tp]", "--mesh", "[dp=2, tp=2]"}));
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string expected =
      "f32[5@dp, 4@tp] on [dp=2, tp=2]\n"
      "  rank 0 at [0, 0]: local [3, 2] = [0:3, 0:2]\n"
      "  rank 1 at [0, 1]: local [3, 2] = [0:3, 2:4]\n"
      "  rank 2 at [1, 0]: local [2, 2] = [3:5, 0:2]\n"
      "  rank 3 at [1, 1]: local [2, 2] = [3:5, 2:4]\n";
  EXPECT_EQ(result.out.substr(0, expected.size()), expected);
}

TEST(CommandTest, LayoutAsJson) {
  const auto result = run_command(sherd_command({"layout", "f32[5@0]", "--mesh", "[4]", "--json"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["tensor"], "f32[5@0]");
  EXPECT_EQ(json["mesh"], "[4]");
  ASSERT_EQ(json["ranks"].size(), 4u);
  EXPECT_EQ(json["ranks"][2]["boxes"][0], (nlohmann::json{{"offset", {4}}, {"size", {1}}}));
  EXPECT_TRUE(json["ranks"][3]["boxes"].empty());
  EXPECT_EQ(json["ranks"][3]["local_shape"], nlohmann::json({0}));
}

TEST(CommandTest, ExplainPrintsWhatTheGoldenSays) {
  std::string command, expected;
  int commands = 0;
  const auto compare = [&] {
    if (command.empty()) return;
    std::vector<std::string> words = words_of(command);
    words.erase(words.begin());
    const auto result = run_command(sherd_command(words));
    const std::string code = result.code == 0 ? "" : "exit " + std::to_string(result.code) + "\n";
    EXPECT_EQ(result.out + result.err + code, expected) << command;
    ++commands;
  };
  for (const std::string& line : split_lines(read_text(SHERD_SOURCE_DIR "/tests/golden/explain.txt"))) {
    if (line.starts_with("$ ")) {
      compare();
      command = line.substr(2);
      expected.clear();
    } else if (!line.empty()) {
      expected += line + "\n";
    }
  }
  compare();
  EXPECT_GE(commands, 28);
}

TEST(CommandTest, ExplainAsJson) {
  const auto result = run_command(
      sherd_command({"explain", "mm", "f32[64@tp, 32]", "f32[32@tp, 8]", "--mesh", "[dp=2, tp=4]", "--json"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["operator"], "mm");
  EXPECT_EQ(json["source"], "table");
  EXPECT_EQ(json["rule"], "i k, k j -> i j | reduce k, linear 0 1");
  EXPECT_EQ(json["factors"][1], (nlohmann::json{{"name", "k"}, {"size", 32}, {"kind", "reduce(sum)"}}));
  EXPECT_TRUE(json["axes"][0]["factor"].is_null());
  EXPECT_EQ(json["axes"][1]["factor"], "i");
  EXPECT_TRUE(json["operands"][0]["steps"].empty());
  EXPECT_EQ(json["operands"][1]["steps"][0], (nlohmann::json{{"step", "exchange@tp"}, {"bytes", 768}}));
  EXPECT_EQ(json["outputs"][0]["tensor"], "f32[64@tp, 8]");
  EXPECT_EQ(json["outputs"][0]["placements"], "(R, S(0))");
  EXPECT_EQ(json["bytes"], 768);
}

TEST(CommandTest, ExplainAsJsonOfAnOperatorAlongAShardedDim) {
  const auto result = run_command(sherd_command({"explain", "unique", "i64[64@a]", "--mesh", "[a=4]", "--json"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["along"], "ranks tell each other what they found, axis by axis");
  EXPECT_EQ(
      json["exchanges"][0],
      (nlohmann::json{
          {"exchange", "all_gather@a of how many each rank found"}, {"times", 1}, {"bytes", 24}, {"least_bytes", 24}}));
  EXPECT_EQ(json["least_bytes"], 24 + 3 * 16);
  EXPECT_EQ(json["bytes"], 24 + 3 * 16 * 16);
  EXPECT_TRUE(json["axes"].empty());
}

TEST(CommandTest, ExplainAsJsonOfAnOperatorWithoutARule) {
  const auto result = run_command(sherd_command({"explain", "erfinv", "f32[8@0]", "--mesh", "[2]", "--json"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["source"], "none");
  EXPECT_TRUE(json["rule"].is_null());
  EXPECT_TRUE(json["outputs"].empty());
  EXPECT_EQ(json["bytes"], 16);
}

}  // namespace
}  // namespace sherd
