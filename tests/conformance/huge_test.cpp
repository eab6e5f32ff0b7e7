// More bytes than 31 bits can count.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/collectives.h"
#include "sherd/world.h"

namespace sherd {
namespace {

class HugeMessageTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, HugeMessageTest, ::testing::Values("threads", "shm"));

TEST_P(HugeMessageTest, MoreThanTwoToThe31BytesPassWhole) {
  constexpr int64_t kNumel = (int64_t{1} << 31) + 8;
  const std::vector<int64_t> places = {0, (int64_t{1} << 31) - 1, int64_t{1} << 31, kNumel - 1};
  const auto body = [&](World& world) {
    // The root's pages stay untouched but for a few bytes, and cost no memory.
    const at::Tensor bytes = world.rank() == 0 ? at::zeros({kNumel}, at::kByte) : at::empty({kNumel}, at::kByte);
    if (world.rank() == 0) {
      for (size_t i = 0; i < places.size(); ++i) bytes[places[i]] = static_cast<int>(i + 1);
    }
    broadcast(world.group(), bytes, 0).wait();
    for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(bytes[places[i]].item<int>(), static_cast<int>(i + 1));
    EXPECT_EQ(bytes[places[1] - 1].item<int>(), 0);
  };
  spawn(2, body, {.backend = GetParam()});
}

}  // namespace
}  // namespace sherd
