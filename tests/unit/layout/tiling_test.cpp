#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "sherd/box.h"

namespace sherd {
namespace {

using Kind = TilingFault::Kind;

// The boxes of an even grid, in random order.
std::vector<Box> grid(const Dims& counts, int64_t side) {
  std::vector<Box> boxes = {{}};
  for (int64_t count : counts) {
    std::vector<Box> longer;
    for (const Box& box : boxes) {
      for (int64_t i = 0; i < count; ++i) {
        longer.push_back(box);
        longer.back().offset.push_back(i * side);
        longer.back().size.push_back(side);
      }
    }
    boxes = std::move(longer);
  }
  std::shuffle(boxes.begin(), boxes.end(), std::mt19937_64(7));
  return boxes;
}

TEST(TilingTest, AScalarIsHeldOnce) {
  const std::vector<Box> one = {Box{}}, two = {Box{}, Box{}};
  EXPECT_EQ(find_tiling_fault(one, {}), std::nullopt);
  EXPECT_EQ(find_tiling_fault({}, {}), (TilingFault{Kind::hole, Box{}}));
  EXPECT_EQ(find_tiling_fault(two, {}), (TilingFault{Kind::overlap, Box{}, 0, 1}));
}

TEST(TilingTest, AnEmptyShapeNeedsNoBoxes) {
  const std::vector<Box> empty = {{{0, 0}, {0, 4}}, {{0, 2}, {0, 2}}};
  EXPECT_EQ(find_tiling_fault({}, {0, 4}), std::nullopt);
  EXPECT_EQ(find_tiling_fault(empty, {0, 4}), std::nullopt);
}

TEST(TilingTest, EmptyBoxesAreIgnoredWhereverTheyStand) {
  const std::vector<Box> boxes = {{{0}, {4}}, {{4}, {0}}, {{2}, {0}}, {{9}, {0}}};
  EXPECT_EQ(find_tiling_fault(boxes, {4}), std::nullopt);
}

TEST(TilingTest, ABoxOfAnotherNdimOrANegativeSizeIsOutside) {
  const std::vector<Box> other_ndim = {{{0, 0}, {4, 1}}}, negative = {{{4}, {-4}}}, mixed = {{{0}, {4, 4}}};
  EXPECT_EQ(find_tiling_fault(other_ndim, {4})->kind, Kind::outside);
  EXPECT_EQ(find_tiling_fault(negative, {4})->kind, Kind::outside);
  EXPECT_EQ(find_tiling_fault(mixed, {4, 4})->kind, Kind::outside);
}

// Five boxes that no straight cut takes apart.
TEST(TilingTest, APinwheelTiles) {
  std::vector<Box> boxes = {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(find_tiling_fault(boxes, {3, 3}), std::nullopt);
  boxes.pop_back();
  EXPECT_EQ(find_tiling_fault(boxes, {3, 3}), (TilingFault{Kind::hole, {{1, 1}, {1, 1}}}));
  boxes.push_back({{1, 1}, {1, 2}});
  EXPECT_EQ(find_tiling_fault(boxes, {3, 3}), (TilingFault{Kind::overlap, {{1, 2}, {1, 1}}, 1, 4}));
}

// The same with a centre of four boxes, of which one at a time is missing: no cut leads to it, only counting does.
TEST(TilingTest, AHoleInsideAPinwheelIsFound) {
  const std::vector<Box> arms = {{{0, 0}, {10, 20}}, {{0, 20}, {20, 10}}, {{20, 10}, {10, 20}}, {{10, 0}, {20, 10}}};
  const std::vector<Box> centre = {{{10, 10}, {3, 6}}, {{10, 16}, {3, 4}}, {{13, 10}, {7, 5}}, {{13, 15}, {7, 5}}};
  for (const Box& missing : centre) {
    std::vector<Box> boxes = arms;
    for (const Box& box : centre)
      if (box != missing) boxes.push_back(box);
    EXPECT_EQ(find_tiling_fault(boxes, {30, 30}), (TilingFault{Kind::hole, missing}));
    boxes.push_back(missing);
    EXPECT_EQ(find_tiling_fault(boxes, {30, 30}), std::nullopt);
  }
}

TEST(TilingTest, SizesNear64BitsDoNotOverflow) {
  const int64_t half = int64_t{1} << 62;
  const std::vector<Box> boxes = {{{0, 0}, {half, half}}, {{half, 0}, {half - 1, half}}};
  EXPECT_EQ(find_tiling_fault(boxes, {2 * (half - 1) + 1, half}), std::nullopt);
  const std::vector<Box> too_far = {{{half, 0}, {half + (half - 1), half}}};
  EXPECT_EQ(find_tiling_fault(too_far, {half, half})->kind, Kind::outside);
}

TEST(TilingTest, GridsOfThousandsOfBoxesTakeMilliseconds) {
  for (const Dims& counts : {Dims{16384}, Dims{128, 128}, Dims{16, 32, 32}, Dims{8, 8, 16, 16}}) {
    auto boxes = grid(counts, 4);
    Dims shape = counts;
    for (int64_t& size : shape) size *= 4;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(find_tiling_fault(boxes, shape), std::nullopt);
    const Box lost = boxes[boxes.size() / 2];
    boxes[boxes.size() / 2] = boxes[0];
    const auto fault = find_tiling_fault(boxes, shape);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->box, fault->kind == Kind::hole ? lost : boxes[0]);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 1.0) << to_string(counts);  // some 10 ms; far from what all pairs would take
  }
}

}  // namespace
}  // namespace sherd
