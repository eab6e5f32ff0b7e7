// Between any two placement lists on a mesh, redistribute keeps the value, and so does its gradient.

#include <gtest/gtest.h>

#include "property/distribute_any.h"
#include "sherd/collectives.h"

namespace sherd::testing {
namespace {

std::vector<Placements> targets(const Mesh& mesh, int64_t ndim) { return all_placements(mesh, ndim, false); }

void check(const DeviceMesh& mesh, const at::Tensor& whole, const Placements& from, const Placements& to,
           std::vector<std::string>& wrong) {
  const std::string what =
      to_string(mesh) + " " + to_string(whole.sizes().vec()) + " " + to_string(from) + " -> " + to_string(to);
  at::Tensor x = distribute_any(whole, mesh, from).detach();
  x.requires_grad_(true);
  const at::Tensor y = redistribute(x, to);
  if (!(placements_of(y) == to)) wrong.push_back(what + ": placements");
  const Layout layout{mesh.mesh(), whole.sizes().vec(), to};
  if (to_local(y.detach()).sizes() != at::IntArrayRef(local_shape(layout, *mesh.coordinate()))) {
    wrong.push_back(what + ": local size");
  }
  if (!full_tensor(y.detach()).equal(whole)) wrong.push_back(what + ": value");
  const at::Tensor weights = torch::arange(whole.numel(), torch::kDouble).view(whole.sizes());
  (y * weights).sum().backward();
  if (!full_tensor(x.grad()).equal(weights)) wrong.push_back(what + ": gradient " + to_string(x.grad()));
}

void check_all(const char* mesh_text, at::IntArrayRef shape, const std::vector<Placements>& extra = {}) {
  const Mesh value = parse_mesh(mesh_text);
  std::vector<std::string> wrong;
  spawn(static_cast<int>(value.size()),
        [&](World& world) {
          const DeviceMesh mesh("cpu", value);
          const at::Tensor whole = torch::arange(c10::multiply_integers(shape), torch::kDouble).view(shape);
          std::vector<Placements> from = all_placements(value, whole.dim(), true);
          std::vector<Placements> to = targets(value, whole.dim());
          from.insert(from.end(), extra.begin(), extra.end());
          to.insert(to.end(), extra.begin(), extra.end());
          std::vector<std::string> mine;
          for (const Placements& a : from) {
            for (const Placements& b : to) check(mesh, whole, a, b, mine);
          }
          if (world.rank() == 0) wrong = mine;
        },
        {.timeout = std::chrono::seconds(20)});
  for (size_t i = 0; i < std::min<size_t>(wrong.size(), 5); ++i) ADD_FAILURE() << wrong[i];
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " wrong";
}

TEST(RedistributeTest, KeepsTheValueOnOneAxis) {
  check_all("[a=3]", {5, 4}, {{StridedShard(0, 2)}, {Ragged(0, {0, 1, 1, 5})}});
}

TEST(RedistributeTest, KeepsTheValueOnTwoAxes) {
  check_all("[a=2, b=2]", {5, 4}, {{StridedShard(0, 2), Shard(0)}, {Ragged(1, {0, 1, 4}), Shard(0)}});
}

TEST(RedistributeTest, KeepsTheValueOnThreeAxes) { check_all("[a=2, b=1, c=2]", {3, 2}); }

TEST(RedistributeTest, KeepsScalarsAndEmptyTensors) {
  check_all("[a=2, b=2]", {});
  check_all("[a=3]", {0, 4});
}

TEST(RedistributeTest, ShardToShardMovesOnlyWhatChangesOwner) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    const at::Tensor x = distribute_tensor(torch::arange(64.).view({8, 8}), mesh, {Shard(0)}, {.source = std::nullopt});
    const CommRecorder recorder;
    redistribute(x, {Shard(1)});
    ASSERT_EQ(recorder.calls().size(), 1U);
    EXPECT_EQ(recorder.calls()[0].name, "all_to_all");
    EXPECT_EQ(recorder.bytes(), 8 * 2 * 4 * 3 / 4);
  });
}

TEST(RedistributeTest, ReplicateToShardSendsNothing) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor x = distribute_tensor(torch::ones({4, 3}), mesh, {Replicate()}, {.source = std::nullopt});
    const CommRecorder recorder;
    redistribute(x, {Shard(1)});
    EXPECT_TRUE(recorder.calls().empty());
  });
}

}  // namespace
}  // namespace sherd::testing
