#include "sherd/mesh.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

const Mesh kMesh({{"dp", 2}, {"tp", 4}});

TEST(MeshTest, AMeshOfNoAxesHoldsRankZero) {
  const Mesh mesh;
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_EQ(mesh.ranks(), (std::vector<int64_t>{0}));
  EXPECT_EQ(mesh.coordinate_of(0), Dims{});
  EXPECT_EQ(mesh.coordinate_of(1), std::nullopt);
  EXPECT_EQ(to_string(mesh), "[]");
  EXPECT_EQ(parse_mesh("[]"), mesh);
}

TEST(MeshTest, RanksAreRowMajor) {
  EXPECT_EQ(kMesh.rank_at(Dims{1, 2}), 6);
  EXPECT_EQ(kMesh.coordinate_of(6), (Dims{1, 2}));
  EXPECT_EQ(kMesh.coordinate_of(8), std::nullopt);
  EXPECT_EQ(kMesh.coordinate_of(-1), std::nullopt);
  EXPECT_EQ(kMesh.shape(), (Dims{2, 4}));
}

TEST(MeshTest, AxesAreFoundByName) {
  EXPECT_EQ(kMesh.axis("tp"), 1);
  EXPECT_EQ(kMesh.find_axis("pp"), std::nullopt);
  EXPECT_EQ(kMesh.axis_label(1), "tp");
  const Mesh unnamed({{"", 2}, {"", 4}});
  EXPECT_FALSE(unnamed.has_names());
  EXPECT_EQ(unnamed.axis_label(1), "1");
  EXPECT_EQ(unnamed.find_axis(""), std::nullopt);
}

TEST(MeshTest, RanksInOrderAreTheDefault) {
  const Mesh listed({{"dp", 2}, {"tp", 2}}, {0, 1, 2, 3});
  EXPECT_EQ(listed, Mesh({{"dp", 2}, {"tp", 2}}));
  EXPECT_TRUE(listed.has_default_ranks());
}

TEST(MeshTest, NamesMatterForEquality) {
  EXPECT_NE(kMesh, Mesh({{"dp", 2}, {"cp", 4}}));
  EXPECT_NE(kMesh, Mesh({{"dp", 2}, {"tp", 4}}, {7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(MeshTest, PrintsAxesAndUnusualRanks) {
  EXPECT_EQ(to_string(kMesh), "[dp=2, tp=4]");
  EXPECT_EQ(to_string(Mesh({{"", 2}, {"", 4}})), "[2, 4]");
  EXPECT_EQ(to_string(Mesh({{"dp", 2}, {"tp", 2}}, {0, 2, 4, 5})), "[dp=2, tp=2]{0, 2, 4-5}");
  EXPECT_EQ(to_string(Mesh({}, {5})), "[]{5}");
  EXPECT_EQ(parse_mesh(" [ dp = 2,tp=2 ] { 0,2 , 4 - 5 }"), Mesh({{"dp", 2}, {"tp", 2}}, {0, 2, 4, 5}));
}

TEST(MeshTest, ASliceKeepsTheOrderAskedFor) {
  EXPECT_EQ(kMesh.slice(Dims{1}, 6), Mesh({{"tp", 4}}, {4, 5, 6, 7}));
  EXPECT_EQ(kMesh.slice(Dims{0}, 6), Mesh({{"dp", 2}}, {2, 6}));
  EXPECT_EQ(kMesh.slice(Dims{1, 0}, 0), Mesh({{"tp", 4}, {"dp", 2}}, {0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(kMesh.slice(Dims{}, 6), Mesh({}, {6}));
}

TEST(MeshTest, FlattenAndUnflattenKeepTheRanks) {
  EXPECT_EQ(kMesh.flatten(0, 2, "world"), Mesh({{"world", 8}}));
  EXPECT_EQ(kMesh.flatten(1, 1, "model"), Mesh({{"dp", 2}, {"model", 4}}));
  EXPECT_EQ(kMesh.unflatten(1, {{"cp", 2}, {"tp", 2}}), Mesh({{"dp", 2}, {"cp", 2}, {"tp", 2}}));
}

TEST(MeshTest, AMillionRanksCostNothing) {
  const Mesh mesh({{"dp", 1000}, {"tp", 1000}});
  EXPECT_EQ(mesh.coordinate_of(999'999), (Dims{999, 999}));
  EXPECT_EQ(to_string(mesh), "[dp=1000, tp=1000]");
}

}  // namespace
}  // namespace sherd
