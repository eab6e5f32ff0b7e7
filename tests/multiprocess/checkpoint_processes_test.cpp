// A rank that is killed while it saves or loads is missed by the others, and the checkpoint that was there stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "multiprocess/ranks.h"

namespace sherd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Ranks;

TEST(CheckpointProcessesTest, ARankThatIsKilledLeavesTheOldCheckpoint) {
  std::string folder = ::testing::TempDir() + "checkpoint-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto run = [&](int ranks, const std::string& what, const std::string& number = "0") {
    return Ranks(ranks, ranks, {SHERD_BINARY_DIR "/tests/checkpoint_program", folder + "/ck", what, number},
                 {.variables = {"SHERD_TIMEOUT=10"}});
  };
  EXPECT_THAT(run(3, "saves", "7").codes, Each(0));
  for (const std::string what : {"dies while saving", "dies while loading"}) {
    const Ranks ranks = run(3, what, "1");
    EXPECT_THAT(ranks.codes, ElementsAre(3, 128 + SIGKILL, 3)) << what;
    for (const size_t rank : {0U, 2U}) EXPECT_THAT(ranks.out[rank], HasSubstr("rank 1 is gone")) << what;
    EXPECT_LT(ranks.seconds, 20) << what;
    EXPECT_THAT(run(2, "loads").out, Each("7\n")) << what;
  }
  EXPECT_THAT(run(4, "saves", "8").codes, Each(0));
  EXPECT_THAT(run(3, "loads").out, Each("8\n"));
  EXPECT_EQ(testing::run_command({"ls", "-A", folder}).out, "ck\n");  // what the killed one left behind is gone
  testing::run_command({"rm", "-r", folder});
}

}  // namespace
}  // namespace sherd
