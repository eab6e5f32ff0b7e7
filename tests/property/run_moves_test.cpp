// Tensors large enough to go from where they lie to where they belong, without being packed: between any two placement
// lists on a mesh, over shared memory without packing and over threads, redistribute keeps the value; so do reshard and
// gather.

#include <gtest/gtest.h>

#include "property/distribute_any.h"
#include "sherd/collectives.h"
#include "sherd/redistribute.h"
#include "sherd/sharded_tensor.h"

namespace sherd::testing {
namespace {

class RunMovesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void run(int ranks, const std::function<void(World&)>& rank) {
    spawn(ranks, rank, {.backend = GetParam(), .timeout = std::chrono::seconds(60)});
  }

  void check_all(const char* mesh_text, at::IntArrayRef shape, const std::vector<Placements>& extra) {
    const Mesh value = parse_mesh(mesh_text);
    std::vector<std::string> wrong;
    run(static_cast<int>(value.size()), [&](World& world) {
      const DeviceMesh mesh("cpu", value);
      const at::Tensor whole = torch::arange(c10::multiply_integers(shape), torch::kDouble).view(shape);
      std::vector<Placements> all = all_placements(value, whole.dim(), false);
      all.insert(all.end(), extra.begin(), extra.end());
      std::vector<std::string> mine;
      for (const Placements& from : all) {
        const at::Tensor x = distribute_any(whole, mesh, from);
        for (const Placements& to : all) {
          const at::Tensor wanted = to_local(distribute_any(whole, mesh, to));
          if (!to_local(redistribute(x, to)).equal(wanted)) mine.push_back(to_string(from) + " -> " + to_string(to));
        }
      }
      const at::Tensor count = torch::tensor(static_cast<int64_t>(mine.size()));
      all_reduce(world.group(), count).wait();
      if (count.item<int64_t>() > 0) {
        ADD_FAILURE() << count.item<int64_t>() << " wrong; on rank " << world.rank() << ": "
                      << (mine.empty() ? "" : mine[0]);
      }
    });
  }
};

TEST_P(RunMovesTest, KeepsTheValueOnOneAxis) {
  check_all("[a=2]", {150, 151}, {{StridedShard(1, 3)}, {Ragged(0, {0, 149, 150})}});
  check_all("[a=3]", {151, 149}, {{StridedShard(0, 2)}, {StridedShard(1, 2)}, {Ragged(1, {0, 1, 1, 149})}});
  check_all("[a=4]", {3, 70, 150}, {{StridedShard(1, 5)}});
}

TEST_P(RunMovesTest, KeepsTheValueOnTwoAxes) {
  check_all("[a=2, b=2]", {203, 205},
            {{StridedShard(0, 2), Shard(0)}, {Ragged(1, {0, 1, 205}), Shard(0)}, {Shard(1), StridedShard(1, 3)}});
}

TEST_P(RunMovesTest, KeepsTheGradient) {
  run(3, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = torch::arange(200 * 211, torch::kDouble).view({200, 211});
    at::Tensor x = distribute_any(whole, mesh, {Shard(0)}).detach().requires_grad_(true);
    const at::Tensor y = redistribute(x, {Shard(1)});
    (y * whole).sum().backward();
    EXPECT_TRUE(full_tensor(x.grad()).equal(whole));
    EXPECT_TRUE(full_tensor(y.detach()).equal(whole));
  });
}

TEST_P(RunMovesTest, RanksThatHaveLittlePackAndMeetThoseThatDoNot) {
  run(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = torch::arange(300 * 100, torch::kDouble).view({300, 100});
    const at::Tensor x = distribute_any(whole, mesh, {Ragged(0, {0, 1, 299, 300})});
    const at::Tensor y = redistribute(x, {Ragged(1, {0, 99, 100, 100})});
    EXPECT_TRUE(full_tensor(y).equal(whole)) << world.rank();
  });
}

TEST_P(RunMovesTest, ReshardAndGatherKeepTheValue) {
  run(4, [](World& world) {
    const auto chunks = [&](int64_t dim, std::vector<int64_t> ranks) {
      std::vector<sharded::RemoteDevice> places;
      for (const int64_t rank : ranks) places.emplace_back(rank, c10::Device("cpu"));
      return sharded::ShardingSpec(sharded::ChunkShardingSpec(dim, std::move(places)));
    };
    const at::Tensor whole = torch::arange(251 * 250, torch::kFloat).view({251, 250});
    const auto rows = sharded::shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    const auto columns = rows.reshard(chunks(1, {3, 1, 0, 2}));
    for (const int64_t dst : {0, 2}) {
      std::optional<at::Tensor> out;
      if (world.rank() == dst) out = torch::zeros_like(whole);
      columns.gather(dst, out);
      if (out) {
        EXPECT_TRUE(out->equal(whole));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, RunMovesTest, ::testing::Values("threads", "shm"),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace sherd::testing
