#include "comm/backend_config.h"

#include <gtest/gtest.h>

#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

using c10::DeviceType;

TEST(BackendConfigTest, OneNameServesEveryDevice) {
  const auto config = BackendConfig::parse("gloo");
  EXPECT_EQ(config.backend_for(DeviceType::CPU), "gloo");
  EXPECT_EQ(config.backend_for(DeviceType::CUDA), "gloo");
  EXPECT_EQ(config.text(), "gloo");
}

TEST(BackendConfigTest, NcclServesGpusAlone) {
  const auto config = BackendConfig::parse("nccl");
  EXPECT_EQ(config.backend_for(DeviceType::CPU), "");
  EXPECT_EQ(config.backend_for(DeviceType::CUDA), "nccl");
}

TEST(BackendConfigTest, EachDeviceMayHaveItsOwn) {
  const auto config = BackendConfig::parse("cpu:gloo,cuda:nccl");
  EXPECT_EQ(config.backend_for(DeviceType::CPU), "gloo");
  EXPECT_EQ(config.backend_for(DeviceType::CUDA), "nccl");
  EXPECT_EQ(config.backend_for(DeviceType::XPU), "");
}

TEST(BackendConfigTest, ANameWithoutADeviceServesTheRest) {
  const auto config = BackendConfig::parse("cuda:nccl,gloo");
  EXPECT_EQ(config.backend_for(DeviceType::CUDA), "nccl");
  EXPECT_EQ(config.backend_for(DeviceType::CPU), "gloo");
}

TEST(BackendConfigTest, MpiServesTheCpuAlone) {
  const auto config = BackendConfig::parse("mpi");
  EXPECT_EQ(config.backend_for(DeviceType::CPU), "mpi");
  EXPECT_EQ(config.backend_for(DeviceType::CUDA), "");
  EXPECT_TRUE(config.has("mpi"));
  EXPECT_TRUE(BackendConfig::parse("cpu:mpi,cuda:nccl").has("mpi"));
  EXPECT_FALSE(BackendConfig::parse("cpu:gloo,cuda:nccl").has("mpi"));
}

TEST(BackendConfigTest, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"ucx", "cuda:mpi", "cpu:", ":gloo", "cpu:gloo:1", "cpu=gloo", "cpu:gloo,",
                           "cpu:gloo,,cuda:nccl", "", "gloo,threads"}) {
    EXPECT_THROW(BackendConfig::parse(text), c10::ValueError) << text;
  }
}

TEST(RankListTest, ReadsLikeWords) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({0, 1}), "0, 1");
  EXPECT_EQ(rank_list({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(rank_list({0, 2, 3, 4, 7}), "0, 2-4, 7");
  EXPECT_EQ(rank_list({3, 2, 1}), "3, 2, 1");
  EXPECT_EQ(rank_count(1), "1 rank");
  EXPECT_EQ(rank_count(4), "4 ranks");
}

}  // namespace
}  // namespace sherd::detail
