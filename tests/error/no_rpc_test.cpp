// What a build without RPC says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/rpc.h"

namespace sherd::testing {
namespace {

TEST(NoRpcTest, EveryRankIsTold) {
  const std::string why =
      "init_rpc: this build has no RPC\n"
      "      TensorPipe: not in torch when sherd was built, or left out\n"
      "      help: build sherd with a torch that has it, as the wheels for Linux do\n";
  EXPECT_THAT(errors_of_ranks(2, [](World& world) { init_rpc(world); }),
              ::testing::Each("init_rpc: 2 of 2 ranks failed\n  rank 0: " + why + "  rank 1: " + why +
                              "  help: mend what these ranks say; no rank went on"));
}

}  // namespace
}  // namespace sherd::testing
