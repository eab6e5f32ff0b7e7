// Who writes what: every element once, by a rank that holds it, and no rank much more than another.

#include "plan/save.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace sherd::plan {
namespace {

struct Laid {
  Mesh mesh;
  TensorText tensor;
  Layout layout;
};

Laid laid_out(const std::string& mesh_text, const std::string& text) {
  const Mesh mesh = parse_mesh(mesh_text);
  TensorText tensor = parse_tensor(text, mesh);
  return {mesh, tensor, {mesh, tensor.shape, tensor.placements}};
}

Box box_of(const WrittenChunks& chunks, size_t chunk, size_t ndim) {
  const auto numbers = chunks.numbers.begin() + static_cast<std::ptrdiff_t>(2 * chunk * ndim);
  const auto end = static_cast<std::ptrdiff_t>(ndim);
  return {Dims(numbers, numbers + end), Dims(numbers + end, numbers + 2 * end)};
}

TEST(SavePlanTest, EveryElementIsWrittenOnceByARankThatHoldsIt) {
  const std::vector<std::pair<std::string, std::string>> layouts = {
      {"[dp=4]", "f32[10@dp, 3]"},
      {"[dp=3]", "f32[2@dp]"},
      {"[dp=2, tp=3]", "f32[7@tp, 5]"},
      {"[dp=2, tp=3]", "f32[7@dp@tp, 5]"},
      {"[dp=2, tp=3]", "f32[7@dp, 5@tp]"},
      {"[dp=2, tp=2]", "f32[9@dp(split=2)@tp]"},
      {"[dp=2, tp=2]", "f32[8, 4]"},
      {"[dp=3]", "f32[10@dp(cuts=0:1:1:10), 2]"},
      {"[dp=2, tp=2]{7, 1, 4, 2}", "f32[6@tp, 3@dp]"},
  };
  for (const auto& [mesh, text] : layouts) {
    const Laid laid = laid_out(mesh, text);
    const SavePlan plan = plan_save(std::vector<SavedTensor>{{4, LaidOutTensor{&laid.layout, {}}}}, 8);
    const WrittenChunks& chunks = plan.tensors.at(0);
    std::vector<Box> boxes;
    for (size_t i = 0; i < chunks.writers.size(); ++i) {
      boxes.push_back(box_of(chunks, i, laid.layout.shape.size()));
      const auto coordinate = laid.mesh.coordinate_of(chunks.writers[i]);
      ASSERT_TRUE(coordinate) << text;
      const auto held = local_boxes(laid.layout, *coordinate);
      EXPECT_TRUE(std::ranges::any_of(held, [&](const Box& box) { return contains(box, boxes.back()); })) << text;
    }
    EXPECT_EQ(find_tiling_fault(boxes, laid.layout.shape), std::nullopt) << text;
    EXPECT_EQ(std::accumulate(plan.bytes.begin(), plan.bytes.end(), int64_t{0}), 4 * numel(laid.layout.shape)) << text;
  }
}

TEST(SavePlanTest, WhatSeveralHoldGoesToWhoHasLeastTheLargestFirst) {
  const std::vector<int32_t> all = {0, 1, 2};
  const auto whole = [&](int64_t rows) { return SavedTensor{1, ListedTensor{{rows}, {{{{0}, {rows}}, all}}}}; };
  const SavedTensor own{1, ListedTensor{{50}, {{{{0}, {50}}, {2}}}}};
  const SavePlan plan = plan_save(std::vector<SavedTensor>{whole(10), whole(40), own, whole(30), whole(20)}, 3);
  EXPECT_EQ(plan.bytes, (std::vector<int64_t>{50, 50, 50}));
  EXPECT_EQ(plan.tensors[2].writers, std::vector<int32_t>{2});
  EXPECT_EQ(plan.tensors[1].writers, std::vector<int32_t>{0});  // 40
  EXPECT_EQ(plan.tensors[3].writers, std::vector<int32_t>{1});  // 30
  EXPECT_EQ(plan.tensors[4].writers, std::vector<int32_t>{1});  // 20
  EXPECT_EQ(plan.tensors[0].writers, std::vector<int32_t>{0});  // 10
}

TEST(SavePlanTest, PartsOfRanksThatDoNotTakePartAreTold) {
  const Laid laid = laid_out("[dp=3]", "f32[6@dp]");
  const std::vector<int32_t> places = {0, -1, 1};
  const SavePlan plan = plan_save(std::vector<SavedTensor>{{4, LaidOutTensor{&laid.layout, places}}}, 2);
  EXPECT_EQ(plan.tensors[0].writers, (std::vector<int32_t>{0, -1, 1}));
  EXPECT_EQ(plan.bytes, (std::vector<int64_t>{8, 8}));
}

// Four thousand ranks: a chunk for each of them, and copies that all have are shared out evenly.
TEST(SavePlanTest, ThousandsOfRanksWriteAlike) {
  constexpr int64_t kRanks = 4096;
  const Laid rows = laid_out("[dp=4096]", "f32[4096@dp, 8]");
  const Laid copies = laid_out("[dp=4096]", "f32[8]");
  std::vector<SavedTensor> tensors;
  for (int i = 0; i < 50; ++i) tensors.push_back({4, LaidOutTensor{&rows.layout, {}}});
  for (int i = 0; i < 50; ++i) tensors.push_back({4, LaidOutTensor{&copies.layout, {}}});
  const SavePlan plan = plan_save(tensors, kRanks);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(plan.tensors[static_cast<size_t>(i)].writers.size(), 4096U);
  const auto [least, most] = std::ranges::minmax(plan.bytes);
  EXPECT_EQ(least, 50 * 8 * 4);
  EXPECT_EQ(most, 51 * 8 * 4);
}

}  // namespace
}  // namespace sherd::plan
