// What a GPU does otherwise than a CPU, with ranks that share one: moves on streams of their own, attention in one
// kernel.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <tuple>
#include <vector>

#include "property/distribute_any.h"
#include "sherd/dtensor.h"
#include "sherd/redistribute.h"

namespace sherd::testing {
namespace {

using at::Tensor;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
};

Tensor numbered(const Dims& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return torch::arange(count, at::TensorOptions(at::kCUDA).dtype(at::kDouble)).view(shape);
}

TEST_F(GpuTest, AnyPlacementsToAnyOtherInEveryWay) {
  const Tensor whole = numbered({5, 7});
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cuda", {2, 2}, {"a", "b"});
    const DeviceMesh other("cuda", Mesh({{"c", 4}}, {3, 1, 0, 2}));
    auto from = all_placements(mesh.mesh(), 2, true);
    const auto unusual = unusual_placements(mesh.mesh(), whole);
    from.insert(from.end(), unusual.begin(), unusual.begin() + 8);
    for (const Placements& before : from) {
      const Tensor x = distribute_any(whole, mesh, before).requires_grad_();
      const auto check = [&](const Tensor& y, const char* way) {
        EXPECT_TRUE(full_tensor(y.detach()).equal(whole)) << way << to_string(x) << to_string(y) << world.rank();
        x.mutable_grad() = Tensor();
        y.backward(distribute_any(whole * 3, mesh_of(y), placements_of(y)));
        EXPECT_TRUE(full_tensor(x.grad()).equal(whole * 3)) << way << to_string(x) << to_string(y) << world.rank();
      };
      for (const Placements& after : all_placements(mesh.mesh(), 2, false)) {
        check(redistribute(x, after), "at once");
        check(redistribute_async(x, after).wait(), "in the background");
        check(redistribute(x, after, {.async = true}), "on its way");
      }
      for (const Placements& after : {Placements{Shard(0)}, {Shard(1)}, {Replicate()}}) {
        check(redistribute(x, other, after), "at once");
        check(redistribute_async(x, other, after).wait(), "in the background");
        check(redistribute(x, other, after, {.async = true}), "on its way");
      }
    }
  });
}

// The move begins when the tensor has been computed, what uses it waits for it, and its memory is not given to others
// before it was read; all without a wait on the host.
TEST_F(GpuTest, MovesStandInOrderWithTheWorkAroundThem) {
  constexpr int64_t kSize = 2048;
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cuda", {2}, {"a"});
    const Tensor busy = torch::eye(kSize, at::kCUDA);
    for (int round = 1; round <= 30; ++round) {
      Tensor part = torch::zeros({kSize / 2, kSize}, at::kCUDA);
      Tensor work = busy;
      for (int i = 0; i < 10; ++i) work = work.mm(busy);
      part.add_(work.select(0, 0).sum() * round + world.rank());  // the sum is 1
      Tensor x = from_local(part, mesh, {Shard(0)});
      part.reset();
      const RedistributeOptions later{.async = true};
      Tensor y = round % 2 == 0 ? redistribute(x, {Shard(1)}, later) : redistribute_async(x, {Shard(1)}).wait();
      x.reset();
      const Tensor taken = torch::full({kSize / 2, kSize}, -1.0, at::kCUDA);  // the memory that x had
      const Tensor again = y * 2;
      const Tensor local = to_local(y).clone();
      y.reset();
      const Tensor over = torch::full({kSize, kSize / 2}, -2.0, at::kCUDA);  // and y
      const Tensor expected = torch::cat({torch::full({kSize / 2, kSize / 2}, round, at::kCUDA),
                                          torch::full({kSize / 2, kSize / 2}, round + 1, at::kCUDA)});
      EXPECT_TRUE(local.equal(expected.to(local.scalar_type()))) << round;
      EXPECT_TRUE(to_local(again).equal(expected.to(local.scalar_type()) * 2)) << round;
      EXPECT_TRUE(taken.eq(-1).all().item<bool>() && over.eq(-2).all().item<bool>()) << round;
    }
  });
}

// Two moves under way at once, and others meanwhile on the rank's own groups.
TEST_F(GpuTest, MovesPassEachOther) {
  const Tensor whole = numbered({512, 256});
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cuda", {4}, {"a"});
    const Tensor x = distribute_tensor(whole, mesh, {Shard(0)});
    for (int round = 0; round < 20; ++round) {
      PendingTensor columns = redistribute_async(x, {Shard(1)});
      PendingTensor all = redistribute_async(x, {Replicate()});
      EXPECT_TRUE(full_tensor(x.sum()).equal(whole.sum()));
      EXPECT_TRUE(full_tensor(columns.wait()).equal(whole));
      EXPECT_TRUE(to_local(all.wait()).equal(whole));
    }
  });
}

// What a GPU computes attention with: one kernel for each call, in 16 bits.
TEST_F(GpuTest, FusedAttentionOverBatchesAndHeads) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kHalf);
  torch::manual_seed(3);
  const Tensor q = torch::randn({4, 4, 64, 32}, options), k = torch::randn({4, 4, 64, 32}, options);
  const Tensor v = torch::randn({4, 4, 64, 32}, options), weights = torch::randn({4, 4, 64, 32}, options);
  const auto attend = [&](std::vector<Tensor> leaves, const std::function<Tensor(const Tensor&)>& place) {
    for (Tensor& leaf : leaves) leaf = place(leaf).detach().requires_grad_();
    std::vector<Tensor> results{at::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, 0, true)};
    (results[0] * place(weights)).sum().backward();
    for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
    return results;
  };
  const auto use = [](bool flash, bool efficient, bool cudnn) {
    at::globalContext().setSDPUseFlash(flash);
    at::globalContext().setSDPUseMemEfficient(efficient);
    at::globalContext().setSDPUseCuDNN(cudnn);
    at::globalContext().setSDPUseMath(false);
  };
  for (const auto& [flash, efficient, cudnn] :
       {std::tuple(true, false, false), {false, true, false}, {false, false, true}}) {
    use(flash, efficient, cudnn);
    std::vector<Tensor> alone;
    try {
      alone = attend({q, k, v}, [](const Tensor& t) { return t; });
    } catch (const std::exception& error) {
      std::printf("no such kernel here (flash %d, efficient %d, cudnn %d): %s\n", flash, efficient, cudnn,
                  error.what());
      continue;
    }
    spawn(4, [&](World& world) {
      const DeviceMesh mesh = init_device_mesh("cuda", {2, 2}, {"a", "b"});
      for (const Placements& p : {Placements{Shard(0), Shard(1)},
                                  {Shard(1), Shard(0)},
                                  {Replicate(), Shard(1)},
                                  {Shard(1), Shard(1)},
                                  {Shard(2), Replicate()},
                                  {Replicate(), Shard(3)}}) {
        const auto sharded = attend({q, k, v}, [&](const Tensor& t) { return distribute_tensor(t, mesh, p); });
        for (size_t i = 0; i < alone.size(); ++i) {
          EXPECT_TRUE(torch::allclose(full_tensor(sharded[i]), alone[i], 1e-2, 1e-2))
              << i << to_string(p) << flash << efficient << cudnn << world.rank();
        }
      }
    });
  }
  at::globalContext().setSDPUseMath(true);
  at::globalContext().setSDPUseFlash(true);
  at::globalContext().setSDPUseMemEfficient(true);
  at::globalContext().setSDPUseCuDNN(true);
}

}  // namespace
}  // namespace sherd::testing
