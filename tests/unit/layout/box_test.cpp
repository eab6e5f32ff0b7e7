#include "sherd/box.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

TEST(BoxTest, NumelOfAScalarIsOneAndOfAnEmptyShapeZero) {
  EXPECT_EQ(numel(Dims{}), 1);
  EXPECT_EQ(numel(Dims{3, 4}), 12);
  EXPECT_EQ(numel(Dims{int64_t{1} << 62, 0, int64_t{1} << 62}), 0);
}

TEST(BoxTest, IntersectionIsTheCommonPartOrNothing) {
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{2, 3}, {4, 4}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersect({{0}, {4}}, {{4}, {4}}), std::nullopt);
  EXPECT_EQ(intersect({{0}, {4}}, {{2}, {0}}), std::nullopt);
  EXPECT_EQ(intersect(Box{}, Box{}), Box{});
}

TEST(BoxTest, AnEmptyBoxIsInsideEveryBox) {
  EXPECT_TRUE(contains({{0, 0}, {4, 4}}, {{1, 1}, {3, 3}}));
  EXPECT_FALSE(contains({{0, 0}, {4, 4}}, {{1, 1}, {4, 3}}));
  EXPECT_TRUE(contains({{0, 0}, {4, 4}}, {{9, 9}, {1, 0}}));
  EXPECT_TRUE(contains(Box{}, Box{}));
}

TEST(BoxTest, PrintsBeginAndEnd) {
  EXPECT_EQ(to_string(Box{{0, 2}, {4, 4}}), "[0:4, 2:6]");
  EXPECT_EQ(to_string(Box{}), "[]");
  EXPECT_EQ(to_string(Dims{4, 6}), "[4, 6]");
  EXPECT_EQ(to_string(Dims{}), "[]");
}

TEST(BoxTest, ParsesWithAnySpaces) {
  EXPECT_EQ(parse_box(" [ 0:4,2 : 6 ] "), (Box{{0, 2}, {4, 4}}));
  EXPECT_EQ(parse_box("[]"), Box{});
  EXPECT_EQ(parse_box("[-2:3]"), (Box{{-2}, {5}}));
  EXPECT_EQ(parse_dims("[4,6]"), (Dims{4, 6}));
  EXPECT_EQ(parse_dims("[ ]"), Dims{});
}

}  // namespace
}  // namespace sherd
