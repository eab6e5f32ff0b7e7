// A rank that is killed while it saves or loads is missed by the others, and the checkpoint that was there stays.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "multiprocess/ranks.h"

namespace sherd {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using testing::Ranks;

TEST(CheckpointProcessesTest, ARankThatIsKilledLeavesTheOldCheckpoint) {
  std::string folder = ::testing::TempDir() + "checkpoint-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto run = [&](int ranks, const std::string& what, const std::string& number = "0") {
    return Ranks(ranks, ranks, {SHERD_BINARY_DIR "/tests/checkpoint_program", folder + "/ck", what, number},
                 {.variables = {"SHERD_TIMEOUT=10"}});
  };
  EXPECT_THAT(run(3, "saves", "7").codes, Each(0));
  double number = 7;
  for (const std::string what : {"dies while saving", "dies while saving in the background", "dies while loading"}) {
    for (const size_t who : {0U, 1U}) {
      const std::string where = fmt::format("{}, rank {}", what, who);
      const Ranks ranks = run(3, what, fmt::to_string(who));
      for (const size_t rank : {0U, 1U, 2U}) {
        EXPECT_EQ(ranks.codes[rank], rank == who ? 128 + SIGKILL : 3) << where;
        if (rank == who) continue;
        EXPECT_THAT(ranks.out[rank], ContainsRegex(fmt::format(": rank {}.* is gone", who))) << where;
      }
      EXPECT_LT(ranks.seconds, 20) << where;
      EXPECT_THAT(run(2, "loads").out, Each(fmt::format("{}\n", number))) << where;
      number += 1;
      EXPECT_THAT(run(3, "saves", fmt::format("{}", number)).codes, Each(0)) << where;
    }
  }
  EXPECT_THAT(run(4, "saves", "20").codes, Each(0));
  EXPECT_THAT(run(3, "loads").out, Each("20\n"));
  EXPECT_EQ(testing::run_command({"ls", "-A", folder}).out, "ck\n");  // what the killed one left behind is gone
  testing::run_command({"rm", "-r", folder});
}

}  // namespace
}  // namespace sherd
