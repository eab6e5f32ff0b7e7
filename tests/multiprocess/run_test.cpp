// `sherd run`: small shell programs as ranks.

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <map>
#include <regex>

#include "command.h"

namespace sherd {
namespace {

using testing::Command;
using testing::Result;
using testing::run_command;
using testing::sherd_command;
using testing::split_lines;

/// `sherd run <options> -- sh -c <script>`
std::vector<std::string> run_words(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), "run");
  options.insert(options.end(), {"--", "sh", "-c", script});
  return sherd_command(options);
}

Result run(std::vector<std::string> options, const std::string& script, const std::string& input = "") {
  return run_command(run_words(std::move(options), script), input);
}

/// The texts of each rank, in order, from lines "[rank] text".
std::map<int, std::vector<std::string>> by_rank(const std::string& out) {
  std::map<int, std::vector<std::string>> result;
  const std::regex form(R"(\[(\d+)\] (.*))");
  for (const auto& line : split_lines(out)) {
    std::smatch match;
    if (std::regex_match(line, match, form))
      result[std::stoi(match[1])].push_back(match[2]);
    else
      ADD_FAILURE() << "a line without its rank: " << line;
  }
  return result;
}

/// False also for a process that ended and that nobody has reaped yet.
bool is_alive(pid_t pid) {
  const std::string status = testing::read_text("/proc/" + std::to_string(pid) + "/stat");
  return !status.empty() && status.find(") Z ") == std::string::npos;
}

bool is_gone_soon(pid_t pid) {
  for (int i = 0; i < 500 && is_alive(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !is_alive(pid);
}

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

TEST(RunTest, EachRankSeesItsVariables) {
  const auto result = run({"-n", "3"}, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto lines = by_rank(result.out);
  ASSERT_EQ(lines.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(lines.at(rank), std::vector{number + " 3 " + number + " 3 127.0.0.1"});
  }
}

TEST(RunTest, RanksShareAFreePort) {
  const auto lines = by_rank(run({"-n", "2"}, "echo $MASTER_PORT").out);
  EXPECT_EQ(lines.at(0), lines.at(1));
  EXPECT_GT(std::stoi(lines.at(0).at(0)), 1023);
}

TEST(RunTest, SeveralHostsNumberTheirRanksThrough) {
  const std::string script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT";
  const auto second = run({"-n", "2", "--nnodes", "3", "--node-rank", "1", "--master", "node0:77"}, script);
  EXPECT_EQ(by_rank(second.out),
            (std::map<int, std::vector<std::string>>{{2, {"2 6 0 2 node0 77"}}, {3, {"3 6 1 2 node0 77"}}}));
  const auto third = run({"-n", "1", "--nnodes", "2", "--node-rank", "1", "--master", "node0"}, script);
  EXPECT_EQ(third.out, "[1] 1 2 0 1 node0 29500\n");
  const auto six = run({"-n", "1", "--nnodes", "2", "--master", "[fe80::1]:5"}, script);
  EXPECT_EQ(six.out, "[0] 0 2 0 1 fe80::1 5\n");
}

TEST(RunTest, ThreadsAreSharedOutUnlessTheUserSays) {
  ::unsetenv("OMP_NUM_THREADS");
  cpu_set_t cores;
  ASSERT_EQ(::sched_getaffinity(0, sizeof cores, &cores), 0);
  const std::string half = std::to_string(std::max(1, CPU_COUNT(&cores) / 2));
  EXPECT_EQ(by_rank(run({"-n", "2"}, "echo $OMP_NUM_THREADS").out).at(1), std::vector{half});
  ::setenv("OMP_NUM_THREADS", "37", 1);
  EXPECT_EQ(run({"-n", "1"}, "echo $OMP_NUM_THREADS").out, "[0] 37\n");
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(RunTest, KeepsStdoutAndStderrApart) {
  const auto result = run({"-n", "1"}, "echo good; echo bad >&2");
  EXPECT_EQ(result.out, "[0] good\n");
  EXPECT_EQ(result.err, "[0] bad\n");
}

TEST(RunTest, FlushesAPartialLastLine) {
  const auto result = run({"-n", "1"}, "printf 'one\\ntwo'; printf three >&2");
  EXPECT_EQ(result.out, "[0] one\n[0] two\n");
  EXPECT_EQ(result.err, "[0] three\n");
}

TEST(RunTest, PrefixCanBeSwitchedOff) { EXPECT_EQ(run({"-n", "1", "--no-prefix"}, "echo text").out, "text\n"); }

TEST(RunTest, LinesOfRanksNeverMix) {
  const auto result =
      run({"-n", "4"}, "i=0; while [ $i -lt 500 ]; do printf a; printf bc$i; printf '%s\\n' z; i=$((i+1)); done");
  const auto lines = by_rank(result.out);
  ASSERT_EQ(lines.size(), 4u);
  for (const auto& [rank, texts] : lines) {
    ASSERT_EQ(texts.size(), 500u) << rank;
    for (size_t i = 0; i < 500; ++i) ASSERT_EQ(texts[i], "abc" + std::to_string(i) + "z");
  }
}

TEST(RunTest, MuchOutputPassesWhole) {
  const auto result = run({"-n", "2", "--no-prefix"}, "yes 0123456789abcde | head -c 8000000");
  EXPECT_EQ(result.out.size(), 16000000u);
}

TEST(RunTest, AFailingRankEndsTheOthersAndGivesItsCode) {
  const Stopwatch watch;
  const auto result = run({"-n", "4"}, "if [ $RANK = 2 ]; then echo last words >&2; exit 3; fi; sleep 60");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.err, "[2] last words\nrun: rank 2 exited with code 3\n");
  EXPECT_LT(watch.seconds(), 30);
}

TEST(RunTest, ASignalGivesItsNumberAbove128) {
  const auto result = run({"-n", "2"}, "[ $RANK = 1 ] && kill -SEGV $$; sleep 60");
  EXPECT_EQ(result.code, 128 + SIGSEGV);
  EXPECT_EQ(result.err, "run: rank 1 was killed by signal 11 (Segmentation fault)\n");
}

TEST(RunTest, RanksThatIgnoreTheRequestAreKilled) {
  const Stopwatch watch;
  const auto result = run({"-n", "2", "--grace", "0.3"},
                          "trap '' TERM; if [ $RANK = 0 ]; then sleep 0.2; exit 7; fi; while :; do sleep 1; done");
  EXPECT_EQ(result.code, 7);
  EXPECT_LT(watch.seconds(), 30);
}

TEST(RunTest, RanksMayCleanUpWithinTheGrace) {
  const auto result =
      run({"-n", "2"}, "if [ $RANK = 0 ]; then sleep 0.3; exit 7; fi; trap 'echo saved; exit 0' TERM; sleep 60 & wait");
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.out, "[1] saved\n");
}

TEST(RunTest, ChildrenOfRanksEndToo) {
  const auto result = run({"-n", "2"}, "sleep 300 & echo $!; [ $RANK = 1 ] && sleep 0.2 && exit 1; wait");
  EXPECT_EQ(result.code, 1);
  for (const auto& [rank, texts] : by_rank(result.out)) EXPECT_TRUE(is_gone_soon(std::stoi(texts.at(0)))) << rank;
}

TEST(RunTest, AForgottenChildDoesNotKeepTheRunAlive) {
  const Stopwatch watch;
  const auto result = run({"-n", "1", "--grace", "0.2"}, "sleep 300 & echo $!");
  EXPECT_EQ(result.code, 0);
  EXPECT_LT(watch.seconds(), 30);
  EXPECT_TRUE(is_gone_soon(std::stoi(result.out.substr(4))));
}

TEST(RunTest, AChildMayFinishItsLastLines) {
  EXPECT_EQ(run({"-n", "1"}, "(sleep 0.3; echo late) &").out, "[0] late\n");
}

TEST(RunTest, InterruptsGoOnToTheRanks) {
  for (const int number : {SIGINT, SIGTERM}) {
    Command command(
        run_words({"-n", "2"}, "trap 'echo caught; exit 0' INT TERM; echo ready; while :; do sleep 0.05; done"));
    ASSERT_TRUE(command.wait_for_lines(2));
    command.signal(number);
    EXPECT_EQ(command.wait(), 0);
    for (const auto& [rank, texts] : by_rank(command.out()))
      EXPECT_EQ(texts, (std::vector<std::string>{"ready", "caught"}));
  }
}

TEST(RunTest, RanksThatDoNotCatchAnInterruptGiveItsNumber) {
  Command command(run_words({"-n", "2"}, "echo ready; exec sleep 60"));
  ASSERT_TRUE(command.wait_for_lines(2));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait(), 128 + SIGTERM);
  EXPECT_TRUE(std::regex_match(command.err(), std::regex("run: rank [01] was killed by signal 15 \\(Terminated\\)\n")));
}

TEST(RunTest, ASecondInterruptEndsRanksThatIgnoreTheFirst) {
  Command command(
      run_words({"-n", "2", "--grace", "0.2"}, "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(command.wait_for_lines(2));
  command.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  command.signal(SIGINT);
  EXPECT_EQ(command.wait(), 128 + SIGKILL);
}

TEST(RunTest, RanksDieWithTheLauncher) {
  Command command(run_words({"-n", "2"}, "echo $$; exec sleep 300"));
  ASSERT_TRUE(command.wait_for_lines(2));
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait(), 128 + SIGKILL);
  for (const auto& [rank, texts] : by_rank(command.out())) EXPECT_TRUE(is_gone_soon(std::stoi(texts.at(0)))) << rank;
}

TEST(RunTest, RankZeroReadsTheInput) { EXPECT_EQ(run({"-n", "2"}, "cat", "some input\n").out, "[0] some input\n"); }

TEST(RunTest, EndsQuietlyWhenNobodyReadsTheOutput) {
  const auto result =
      run_command({"bash", "-c", SHERD_BINARY_DIR "/bin/sherd run -n 2 -- yes | head -n 1; echo ${PIPESTATUS[0]}"});
  EXPECT_EQ(split_lines(result.out).at(1), std::to_string(128 + SIGPIPE));
}

TEST(RunTest, TheSeparatorMayBeLeftOut) {
  EXPECT_EQ(run_command(sherd_command({"run", "-n", "1", "echo", "-n", "5", "--", "x"})).out, "[0] 5 -- x\n");
  EXPECT_EQ(run_command(sherd_command({"run", "-n", "1", "--", "printf", "%s", "--help"})).out, "[0] --help\n");
}

TEST(RunTest, AProgramThatCannotStartIsNamed) {
  const auto missing = run_command(sherd_command({"run", "-n", "2", "--", "/no/such/program"}));
  EXPECT_EQ(missing.code, 127);
  EXPECT_EQ(missing.err,
            "run: cannot start rank 0\n"
            "  program: /no/such/program\n"
            "  cause: No such file or directory\n"
            "  help: give the path of a program, or its name where it is on the PATH\n");
  EXPECT_EQ(run_command(sherd_command({"run", "-n", "1", "--", "/etc/passwd"})).code, 126);
}

TEST(RunTest, BadUsageIsExplained) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"run"}, "run: --nproc is required\n  help: sherd run --help\n"},
      {{"run", "-n", "2"}, "run: no program given\n  program: none\n  help: sherd run -n 4 -- ./program arguments\n"},
      {{"run", "-n", "2", "--"},
       "run: no program given\n  program: none\n  help: sherd run -n 4 -- ./program arguments\n"},
      {{"run", "-n", "0", "--", "true"},
       "run: at least one rank is needed\n  ranks: 0\n  help: sherd run -n 4 -- ./program arguments\n"},
      {{"run", "-n", "two", "--", "true"}, "run: Could not convert: --nproc = two\n  help: sherd run --help\n"},
      {{"run", "-n", "1", "--no-such", "--", "true"},
       "run: no such option\n  option: --no-such\n  help: sherd run --help\n"},
      {{"run", "-n", "1", "--nnodes", "2", "--", "true"},
       "run: several hosts need the address of the first\n  nodes: 2\n"
       "  help: sherd run -n 4 --nnodes 2 --node-rank 0 --master HOST:29500 -- ./program\n"},
      {{"run", "-n", "1", "--nnodes", "2", "--node-rank", "2", "--master", "a", "--", "true"},
       "run: node rank is out of range\n  node rank: 2 of 2\n  help: sherd run -n 4 -- ./program arguments\n"},
      {{"run", "-n", "1", "--master", "a:b", "--", "true"},
       "run: --master is not HOST or HOST:PORT\n  --master: a:b\n  help: --master node1:29500\n"},
      {{"run", "-n", "1", "--grace", "-1", "--", "true"},
       "run: the grace is negative\n  grace: -1 s\n  help: sherd run -n 4 -- ./program arguments\n"},
  };
  for (const auto& [words, text] : cases) {
    const auto result = run_command(sherd_command(words));
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_EQ(result.err, text);
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace sherd
