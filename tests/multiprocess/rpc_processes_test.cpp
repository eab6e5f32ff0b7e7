// RPC between processes: every rank fetches from every other, and one that is lost is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "multiprocess/ranks.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using testing::Ranks;
using testing::run_command;
using testing::sherd_command;

const std::string kProgram = SHERD_BINARY_DIR "/tests/rpc_program";

TEST(RpcProcessesTest, EveryRankFetchesFromEveryOtherAndLeavesNoThread) {
  const auto result = run_command(sherd_command({"run", "-n", "3", "--", kProgram}));
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(testing::split_lines(result.out),
              ::testing::UnorderedElementsAre("[0] rank 0 is done", "[1] rank 1 is done", "[2] rank 2 is done"));
  EXPECT_EQ(result.err, "");
}

TEST(RpcProcessesTest, AProgramMayEndWithoutShutdown) {
  const Ranks ranks(3, 3, {kProgram, "forgets to shut down"});
  EXPECT_THAT(ranks.codes, ElementsAre(0, 0, 0)) << ranks.err[0] << ranks.err[1] << ranks.err[2];
  EXPECT_LT(ranks.seconds, 15);
}

// Whether or not it keeps the store of the world.
TEST(RpcProcessesTest, ARankThatIsKilledIsNamedByThoseWhoFetchFromIt) {
  for (const std::string what : {"is killed", "is killed while others fetch"}) {
    for (const int who : {0, 1}) {
      const Ranks ranks(3, 3, {kProgram, what, std::to_string(who)});
      for (int rank = 0; rank < 3; ++rank) {
        const auto i = static_cast<size_t>(rank);
        EXPECT_EQ(ranks.codes[i], rank == who ? 128 + SIGKILL : 3) << ranks.out[i] << ranks.err[i];
        EXPECT_EQ(ranks.out[i], rank == who ? ""
                                            : "to_here: rank " + std::to_string(who) +
                                                  " is gone\n"
                                                  "  cause: ...\n"
                                                  "  help: look at the output of these ranks\n");
      }
      EXPECT_LT(ranks.seconds, 15);
    }
  }
}

TEST(RpcProcessesTest, ARankThatIsKilledIsMissedByTheShutdown) {
  const Ranks ranks(3, 3, {kProgram, "is killed before the shutdown", "1"});
  EXPECT_THAT(ranks.codes, ElementsAre(3, 128 + SIGKILL, 3));
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ranks.out[rank],
              "barrier: rank 1 is gone\n"
              "  group: ranks 0-2\n"
              "  cause: ...\n"
              "  help: look at the output of these ranks\n");
  }
}

TEST(RpcProcessesTest, TheOthersLearnWhyARankFailed) {
  const Ranks ranks(3, 3, {kProgram, "throws uncaught", "1"});
  EXPECT_THAT(ranks.codes, ElementsAre(3, 128 + SIGABRT, 3));
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ranks.out[rank],
              "to_here: rank 1 failed\n"
              "  rank 1: the loss is not a number\n"
              "  help: mend what rank 1 says; this rank stopped because of it\n");
  }
}

TEST(RpcProcessesTest, ARankThatEndedIsNamed) {
  for (const int who : {0, 2}) {
    const Ranks ranks(3, 3, {kProgram, "ends early", std::to_string(who)});
    for (int rank = 0; rank < 3; ++rank) {
      const auto i = static_cast<size_t>(rank);
      EXPECT_EQ(ranks.codes[i], rank == who ? 0 : 3) << ranks.out[i] << ranks.err[i];
      EXPECT_EQ(ranks.out[i], rank == who
                                  ? ""
                                  : "to_here: rank " + std::to_string(who) +
                                        " has already ended\n"
                                        "  cause: ...\n"
                                        "  help: sherd::shutdown_rpc(world) on every rank: it waits for the others\n");
    }
    EXPECT_LT(ranks.seconds, 15);
  }
}

}  // namespace
}  // namespace sherd
