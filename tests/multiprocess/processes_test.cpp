// Worlds of processes: they work, and when a rank is lost the others say so and end by themselves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "multiprocess/ranks.h"

namespace sherd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::Listener;
using testing::Ranks;
using testing::run_command;
using testing::sherd_command;

const std::string kCollectives = SHERD_BINARY_DIR "/tests/collectives_program";
const std::string kFailing = SHERD_BINARY_DIR "/tests/failing_program";

TEST(ProcessesTest, EveryCollectiveWorksOnAMeshOfProcesses) {
  const auto result = run_command(sherd_command({"run", "-n", "4", "--", kCollectives}));
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(testing::split_lines(result.out),
              ::testing::UnorderedElementsAre("[0] rank 0 ends first", "[1] rank 1 is done", "[2] rank 2 is done",
                                              "[3] rank 3 is done"));
}

TEST(ProcessesTest, EveryCollectiveWorksWhereCallsAreCompared) {
  const auto result =
      run_command({"env", "SHERD_CHECK=1", SHERD_BINARY_DIR "/bin/sherd", "run", "-n", "4", "--", kCollectives});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST(ProcessesTest, ARankThatIsKilledIsMissedByTheOthers) {
  for (const std::string what : {"is killed", "aborts"}) {
    const Ranks ranks(4, 4, {kFailing, what, "1"});
    const int code = 128 + (what == "aborts" ? SIGABRT : SIGKILL);
    EXPECT_THAT(ranks.codes, ElementsAre(3, code, 3, 3));
    for (const int rank : {0, 2, 3}) {
      EXPECT_EQ(ranks.out[static_cast<size_t>(rank)],
                "all_reduce: rank 1 is gone\n"
                "  group: ranks 0-3\n"
                "  cause: ...\n"
                "  help: look at the output of these ranks\n");
    }
  }
}

TEST(ProcessesTest, ARankThatIsKilledInTheMiddleOfACallIsMissedByTheOthers) {
  const Ranks ranks(4, 4, {kFailing, "is killed while it calls", "2"});
  EXPECT_THAT(ranks.codes, ElementsAre(3, 3, 128 + SIGKILL, 3));
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(ranks.out[static_cast<size_t>(rank)],
              "all_reduce: rank 2 is gone\n"
              "  group: ranks 0-3\n"
              "  cause: ...\n"
              "  help: look at the output of these ranks\n");
  }
}

// A segment of shared memory: its device and inode, as the kernel writes them, "00:1a 4711".
using Segments = std::set<std::string>;

// Of those that a process printed. None has a name that could be left behind.
Segments segments_in(const std::string& output) {
  Segments segments;
  for (const std::string& line : testing::split_lines(output)) {
    if (line.rfind("segment ", 0) != 0) continue;
    const size_t device = line.find(' ') + 1;
    const size_t path = line.find(' ', line.find(' ', device) + 1) + 1;
    EXPECT_THAT(line, ::testing::EndsWith(" (deleted)"));
    segments.insert(line.substr(device, path - 1 - device));
  }
  return segments;
}

// Of those, the ones that a process of this machine maps or has open. Who does neither is gone: it has no name.
Segments still_there(const Segments& segments) {
  namespace fs = std::filesystem;
  Segments found;
  std::error_code unreadable;  // processes of others, and those that end meanwhile
  for (const auto& process : fs::directory_iterator("/proc", unreadable)) {
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      for (const std::string& segment : segments) {
        if (line.find(" " + segment + " ") != std::string::npos) found.insert(segment);
      }
    }
    for (const auto& file : fs::directory_iterator(process.path() / "fd", unreadable)) {
      struct stat status {};
      if (::stat(file.path().c_str(), &status) != 0) continue;
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), "%02x:%02x %lu", major(status.st_dev), minor(status.st_dev),
                    static_cast<unsigned long>(status.st_ino));
      if (segments.count(text.data()) > 0) found.insert(text.data());
    }
  }
  return found;
}

Segments names_in_shared_memory() {
  Segments names;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = file.path().filename();
    if (name.find("sherd") != std::string::npos || name[0] == '#') names.insert(name);
  }
  return names;
}

TEST(ProcessesTest, NothingOfTheMemoryThatRanksSharedIsLeftWhenTheyWereKilled) {
  const Segments before = names_in_shared_memory();
  for (const std::string what : {"is killed with its memory", "all are killed with their memory"}) {
    const Ranks ranks(3, 3, {kFailing, what, "1"});
    const int survivor = what[0] == 'i' ? 3 : 128 + SIGKILL;
    EXPECT_THAT(ranks.codes, ElementsAre(survivor, 128 + SIGKILL, survivor));
    Segments all;
    for (const std::string& out : ranks.out) {
      const Segments segments = segments_in(out);
      EXPECT_GE(segments.size(), 2U) << out << ": where the ranks meet, and the message";
      all.insert(segments.begin(), segments.end());
    }
    EXPECT_EQ(all.size(), 4U) << "one place to meet, and a message of each rank";
    EXPECT_THAT(still_there(all), ::testing::IsEmpty());
  }
  EXPECT_EQ(names_in_shared_memory(), before);
}

TEST(ProcessesTest, ARankThatIsLateIsNamed) {
  const Ranks ranks(3, 3, {kFailing, "is late", "1"}, {.variables = {"SHERD_TIMEOUT=2"}});
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks.codes[static_cast<size_t>(rank)], 3);
    EXPECT_EQ(
        ranks.out[static_cast<size_t>(rank)],
        "all_reduce: rank 1 never came\n"
        "  group: ranks 0-2\n"
        "  cause: ...\n"
        "  help: see what these ranks do instead; SHERD_TIMEOUT=600 waits longer, SHERD_CHECK=1 compares the calls\n");
  }
}

TEST(ProcessesTest, WhatARankSentBeforeItEndedIsReceived) {
  const Ranks ranks(3, 3, {kFailing, "sends and ends", "1"});
  EXPECT_THAT(ranks.codes, Each(0)) << ranks.out[0];
}

TEST(ProcessesTest, WhereThereIsTooLittleSharedMemoryGlooStandsIn) {
  const auto result = run_command(
      {"env", "SHERD_SHM_BYTES=1000000000000", SHERD_BINARY_DIR "/bin/sherd", "run", "-n", "4", "--", kCollectives});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              ::testing::HasSubstr("shm: too little memory to share: these ranks talk through gloo, which is slower\n"
                                   "[0]   group: ranks 0-3\n"
                                   "[0]   needed: 3814697.3 MiB of /dev/shm\n"
                                   "[0]   cause: posix_fallocate: No space left on device\n"
                                   "[0]   help: a larger /dev/shm, or SHERD_SHM_BYTES=65536 for less of it per rank"));
}

const std::vector<std::string> kTwoHosts = {"a", "a", "b", "b"};
const std::vector<std::string> kInterleaved = {"a", "b", "a", "b"};

// Whichever host it was on, and whether or not it talked for its host.
TEST(ProcessesTest, ARankThatIsKilledIsMissedOnEveryHost) {
  for (const std::string what : {"is killed", "is killed while it calls"}) {
    for (const int who : {1, 2}) {
      const Ranks ranks(4, 4, {kFailing, what, std::to_string(who)}, {.hosts = kTwoHosts});
      for (int rank = 0; rank < 4; ++rank) {
        const auto i = static_cast<size_t>(rank);
        EXPECT_EQ(ranks.codes[i], rank == who ? 128 + SIGKILL : 3);
        EXPECT_LT(ranks.seconds, 15);
        EXPECT_EQ(ranks.out[i], rank == who ? ""
                                            : "all_reduce: rank " + std::to_string(who) +
                                                  " is gone\n"
                                                  "  group: ranks 0-3\n"
                                                  "  cause: ...\n"
                                                  "  help: look at the output of these ranks\n");
      }
    }
  }
}

TEST(ProcessesTest, ARankThatIsLateIsNamedOnEveryHost) {
  for (const int who : {2, 3}) {  // the one that talks for its host, and another
    const Ranks ranks(4, 4, {kFailing, "is late", std::to_string(who)},
                      {.variables = {"SHERD_TIMEOUT=2"}, .hosts = kTwoHosts});
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == who) continue;
      EXPECT_EQ(ranks.codes[static_cast<size_t>(rank)], 3);
      EXPECT_EQ(
          ranks.out[static_cast<size_t>(rank)],
          "all_reduce: rank " + std::to_string(who) +
              " never came\n"
              "  group: ranks 0-3\n"
              "  cause: ...\n"
              "  help: see what these ranks do instead; SHERD_TIMEOUT=600 waits longer, SHERD_CHECK=1 compares the "
              "calls\n");
    }
  }
}

TEST(ProcessesTest, ARankThatEndsEarlyIsNamedOnEveryHost) {
  for (const int who : {0, 1, 2}) {
    const Ranks ranks(4, 4, {kFailing, "ends early", std::to_string(who)}, {.hosts = kTwoHosts});
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(ranks.codes[static_cast<size_t>(rank)], rank == who ? 0 : 3);
      if (rank == who) continue;
      EXPECT_EQ(ranks.out[static_cast<size_t>(rank)],
                "all_reduce: rank " + std::to_string(who) +
                    " has already ended\n"
                    "  group: ranks 0-3\n"
                    "  cause: ...\n"
                    "  help: every rank of a group makes the same calls in the same order\n");
    }
  }
}

TEST(ProcessesTest, EveryCollectiveWorksOnAMeshOverTwoHosts) {
  for (const auto& hosts : {kTwoHosts, kInterleaved}) {
    const Ranks ranks(4, 4, {kCollectives}, {.hosts = hosts});
    EXPECT_THAT(ranks.codes, Each(0)) << ranks.out[0] << ranks.err[0];
  }
}

TEST(ProcessesTest, WhereAHostHasTooLittleSharedMemoryGlooStandsInForAll) {
  const Ranks ranks(4, 4, {kCollectives}, {.variables = {"SHERD_SHM_BYTES=1000000000000"}, .hosts = kTwoHosts});
  EXPECT_THAT(ranks.codes, Each(0)) << ranks.out[0] << ranks.err[0];
  EXPECT_THAT(ranks.err[2], ::testing::HasSubstr("shm: too little memory to share"));
}

TEST(ProcessesTest, SharedMemoryAloneIsNotEnoughForTwoHosts) {
  const Ranks ranks(2, 2, {kFailing, "", "-1", "shm"}, {.hosts = {"a", "b"}});
  EXPECT_THAT(ranks.codes, Each(3));
  EXPECT_THAT(ranks.out, Each("barrier: the ranks of the group are not on one host\n"
                              "  group: ranks 0, 1\n"
                              "  backend: shm\n"
                              "  help: WorldOptions{.backend = \"gloo\"}, or leave it empty\n"));
}

TEST(ProcessesTest, AProcessIsInOneWorld) {
  const auto result = run_command({kFailing, "joins another world"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_EQ(result.out,
            "init_with_store: this process has joined another world already\n"
            "  joined: rank 0 of 1\n"
            "  asked: rank 1 of 3\n"
            "  help: set c10d (torch.distributed) up before the first call of sherd\n");
}

TEST(ProcessesTest, TheRankThatKeepsTheStoreIsMissedByTheOthers) {
  const Ranks ranks(3, 3, {kFailing, "is killed", "0"});
  EXPECT_THAT(ranks.codes, ElementsAre(128 + SIGKILL, 3, 3));
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ranks.out[static_cast<size_t>(rank)],
              "all_reduce: rank 0, which keeps the store of the world, is gone\n"
              "  group: ranks 0-2\n"
              "  cause: ...\n"
              "  help: look at the output of rank 0\n");
  }
}

TEST(ProcessesTest, AnExceptionThatLeavesMainReachesTheOthers) {
  const std::vector<std::pair<int, std::vector<std::string>>> cases = {{2, {}}, {0, {}}, {2, {"a", "a", "b"}}};
  for (const auto& [who, hosts] : cases) {
    const std::string name = std::to_string(who);
    const Ranks ranks(3, 3, {kFailing, "throws uncaught", name}, {.hosts = hosts});
    for (int rank = 0; rank < 3; ++rank) {
      const auto i = static_cast<size_t>(rank);
      if (rank == who) {
        EXPECT_EQ(ranks.codes[i], 128 + SIGABRT);
        EXPECT_THAT(ranks.err[i], ::testing::HasSubstr("the loss is not a number"));
        continue;
      }
      EXPECT_EQ(ranks.codes[i], 3);
      EXPECT_EQ(ranks.out[i], "all_reduce: rank " + name +
                                  " failed\n"
                                  "  rank " +
                                  name +
                                  ": the loss is not a number\n"
                                  "  help: mend what rank " +
                                  name + " says; this rank stopped because of it\n");
    }
  }
}

TEST(ProcessesTest, ARankThatEndsEarlyIsNamed) {
  for (const int who : {1, 0}) {  // rank 0 keeps the store, and waits for the others when it ends
    const Ranks ranks(3, 3, {kFailing, "ends early", std::to_string(who)});
    EXPECT_EQ(ranks.codes[static_cast<size_t>(who)], 0);
    for (const int rank : {1 - who, 2}) {
      EXPECT_EQ(ranks.codes[static_cast<size_t>(rank)], 3);
      EXPECT_EQ(ranks.out[static_cast<size_t>(rank)],
                "all_reduce: rank " + std::to_string(who) +
                    " has already ended\n"
                    "  group: ranks 0-2\n"
                    "  cause: ...\n"
                    "  help: every rank of a group makes the same calls in the same order\n");
    }
  }
}

TEST(ProcessesTest, RanksThatNeverArriveAreNamed) {
  const Ranks ranks(2, 4, {kFailing}, {.variables = {"SHERD_TIMEOUT=4"}});
  EXPECT_THAT(ranks.codes, Each(3));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.out[static_cast<size_t>(rank)],
              "init: ranks 2, 3 never came\n"
              "  world: 4 ranks, this is rank " +
                  std::to_string(rank) +
                  "\n"
                  "  address: 127.0.0.1:" +
                  ranks.port +
                  "\n"
                  "  waited: 4 s\n"
                  "  help: start the missing ranks; SHERD_TIMEOUT=600 waits longer\n");
  }
}

TEST(ProcessesTest, AMissingRankZeroIsNamed) {
  const Ranks ranks(1, 2, {kFailing}, {.variables = {"SHERD_TIMEOUT=1"}, .first = 1});
  EXPECT_THAT(ranks.codes, Each(3));
  EXPECT_EQ(ranks.out[0],
            "init: rank 0 never came\n"
            "  address: 127.0.0.1:" +
                ranks.port +
                "\n"
                "  waited: 1 s\n"
                "  cause: ...\n"
                "  help: start rank 0, and check MASTER_ADDR and MASTER_PORT\n");
}

TEST(ProcessesTest, ComparedCallsNameWhatEachRankCalls) {
  const Ranks ranks(2, 2, {kFailing, "calls something else", "1"}, {.variables = {"SHERD_CHECK=1"}});
  EXPECT_THAT(ranks.codes, Each(3));
  const std::string facts =
      "  rank 0: all_reduce(sum) f32[4]\n"
      "  rank 1: barrier\n"
      "  help: every rank of a group makes the same calls in the same order\n";
  EXPECT_THAT(ranks.out, ElementsAre("all_reduce: ranks call different things\n" + facts,
                                     "barrier: ranks call different things\n" + facts));
}

TEST(ProcessesTest, ATakenPortIsNamed) {
  const Listener taken;
  const Ranks ranks(1, 2, {kFailing}, {.variables = {"SHERD_TIMEOUT=5"}, .port = taken.port()});
  EXPECT_THAT(ranks.codes, Each(3));
  EXPECT_EQ(ranks.out[0],
            "init: rank 0 cannot listen at its port\n"
            "  address: 127.0.0.1:" +
                taken.port() +
                "\n"
                "  cause: ...\n"
                "  help: MASTER_PORT=" +
                std::to_string(std::stoi(taken.port()) + 1) + ", or another free port\n");
}

TEST(ProcessesTest, SettingsThatMakeNoSenseAreRefused) {
  const auto refused = [](const std::string& setting) {
    const auto result = run_command({"env", setting, kFailing});
    EXPECT_EQ(result.code, 3) << result.err;
    return result.out;
  };
  for (const std::string value : {"soon", "0", "3s", "1e300"}) {
    EXPECT_EQ(refused("SHERD_TIMEOUT=" + value),
              "environment: SHERD_TIMEOUT has a value that makes no sense\n"
              "  SHERD_TIMEOUT: \"" +
                  value +
                  "\"\n"
                  "  help: SHERD_TIMEOUT=300  (seconds)\n");
  }
  EXPECT_EQ(refused("SHERD_CHECK=yes"),
            "environment: SHERD_CHECK has a value that makes no sense\n"
            "  SHERD_CHECK: \"yes\"\n"
            "  help: SHERD_CHECK=1\n");
  for (const std::string value : {"much", "100", "nan", "1e300"}) {
    EXPECT_EQ(refused("SHERD_SHM_BYTES=" + value),
              "environment: SHERD_SHM_BYTES has a value that makes no sense\n"
              "  SHERD_SHM_BYTES: \"" +
                  value +
                  "\"\n"
                  "  help: SHERD_SHM_BYTES=2097152  (bytes, 65536 or more)\n");
  }
  EXPECT_EQ(refused("SHERD_LOG=loud"),
            "environment: SHERD_LOG has a value that makes no sense\n"
            "  SHERD_LOG: \"loud\"\n"
            "  help: SHERD_LOG=info\n");
  EXPECT_EQ(refused("RANK=0"),
            "init: WORLD_SIZE is not set\n"
            "  set: RANK (torchrun's variables)\n"
            "  help: start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE\n");
}

// The command plans by the costs that programs started from the same shell plan by.
TEST(ProcessesTest, ExplainGoesByTheCostsOfTheEnvironment) {
  const auto explained = [](const std::string& costs) {
    const auto result = run_command({"env", "SHERD_COSTS=" + costs, SHERD_BINARY_DIR "/bin/sherd", "explain",
                                     "redistribute", "f32[64, 32] P(sum)@tp", "f32[64, 32]", "--mesh", "[dp=2, tp=4]"});
    return result.out + result.err;
  };
  const std::string first = "redistribute  f32[64, 32] P(sum)@tp -> f32[64, 32]\n";
  EXPECT_EQ(explained(""),
            first + "  all_reduce@tp 12.0 KiB; 2.0 KiB more than the fewest, for 6 messages instead of 7\n");
  EXPECT_EQ(explained("call=0,message=0,byte=1e-09"),
            first + "  slice@dp, reduce_scatter@tp 3.0 KiB, exchange@dp@tp 7.0 KiB\n");
  EXPECT_EQ(explained("call=cheap"),
            "explain: parse_costs: these are no costs of communication\n"
            "  text: \"call=cheap\"\n"
            "  help: call=3e-05,message=1e-05,byte=1e-09\n");
}

TEST(ProcessesTest, WithoutALauncherThereIsOneRank) {
  const auto result = run_command({"env", "SHERD_TIMEOUT=0.5", kFailing});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace sherd
