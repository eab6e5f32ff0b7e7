// Look-ups in a table that is cut by rows, by columns, into a grid or anyhow: each rank asks for its own ids.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "property/random_spec.h"
#include "sherd/sherd.h"

namespace sherd::sharded {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using sherd::testing::SpecMaker;

constexpr int64_t kRows = 7;
constexpr int64_t kWidth = 5;

Tensor table() { return torch::arange(kRows * kWidth, torch::kDouble).remainder(9).sub(4).view({kRows, kWidth}); }

// The ids of a rank: another number on each, with repetitions, none on rank 2.
Tensor ids_of(int64_t rank) {
  if (rank == 2) return torch::empty({0}, torch::kLong);
  return (torch::arange(3 + rank, torch::kLong) * (rank + 3) + rank).remainder(kRows);
}

std::vector<ShardingSpec> specs(int64_t ranks) {
  SpecMaker make(5, ranks);
  std::vector<RemoteDevice> placements;
  for (int64_t r = 0; r < ranks; ++r) placements.emplace_back((r + 1) % ranks, c10::Device(c10::kCPU));
  std::vector<ShardingSpec> specs{ChunkShardingSpec(0, placements), ChunkShardingSpec(1, placements)};
  for (int i = 0; i < 4; ++i) specs.push_back(make.grid({kRows, kWidth}));
  if (ranks == 4) {
    std::vector<ShardMetadata> cells;
    for (int64_t r = 0; r < 4; ++r) {
      const int64_t row = r / 2;
      const int64_t column = r % 2;
      cells.push_back({{4 * row, 3 * column}, {4 - row, 3 - column}, RemoteDevice(r, c10::Device(c10::kCPU))});
    }
    specs.emplace_back(EnumerableShardingSpec(cells));
  }
  return specs;
}

// `run` on the sharded table with this rank's ids, and on the whole one with the ids of all ranks, one after the other:
// the same rows, and the same gradient of the table.
void compare(const std::function<Tensor(const Tensor& weight, int64_t rank)>& run) {
  for (const int ranks : {1, 2, 3, 4}) {
    spawn(ranks,
          [&](World& world) {
            for (const ShardingSpec& spec : specs(ranks)) {
              SCOPED_TRACE(to_string(spec));
              const Tensor whole = table().requires_grad_();
              const ShardedTensor weight = shard_tensor(whole, spec);
              Tensor expected;
              for (int64_t rank = 0; rank < ranks; ++rank) {
                const Tensor rows = run(whole, rank);
                (rows * (rank + 1)).sum().backward();
                if (rank == world.rank()) expected = rows;
              }
              const Tensor rows = run(weight, world.rank());
              EXPECT_EQ(rows.sizes(), expected.sizes());
              EXPECT_TRUE(rows.allclose(expected)) << rows << expected;
              (rows * (world.rank() + 1)).sum().backward();
              const Tensor out = torch::empty_like(whole);
              ShardedTensor(weight.grad()).gather(0, world.rank() == 0 ? std::optional(out) : std::nullopt);
              if (world.rank() == 0) {
                EXPECT_TRUE(out.allclose(whole.grad())) << out << whole.grad();
              }
            }
          },
          {.timeout = std::chrono::seconds(20)});
  }
}

TEST(EmbeddingTest, GivesEachRankItsRows) {
  compare([](const Tensor& weight, int64_t rank) { return F::embedding(ids_of(rank), weight); });
}

TEST(EmbeddingTest, TakesIdsOfAnyShapeAndAPadding) {
  compare([](const Tensor& weight, int64_t rank) {
    const Tensor ids = ids_of(rank + 3).narrow(0, 0, 6).view({2, 3});
    return F::embedding(ids, weight, F::EmbeddingFuncOptions().padding_idx(3));
  });
}

TEST(EmbeddingTest, ShortensRowsThatAreTooLong) {
  for (const int ranks : {1, 2, 4}) {
    spawn(ranks, [&](World& world) {
      for (const ShardingSpec& spec : specs(ranks)) {
        const Tensor whole = table();
        const Tensor weight = shard_tensor(whole, spec);
        Tensor all;
        for (int64_t rank = 0; rank < ranks; ++rank)
          all = all.defined() ? torch::cat({all, ids_of(rank)}) : ids_of(rank);
        F::embedding(all, whole, F::EmbeddingFuncOptions().max_norm(2.5).norm_type(2.0));
        const Tensor rows =
            F::embedding(ids_of(world.rank()), weight, F::EmbeddingFuncOptions().max_norm(2.5).norm_type(2.0));
        EXPECT_TRUE(rows.allclose(whole.index_select(0, ids_of(world.rank()))));
        const Tensor out = torch::empty_like(whole);
        ShardedTensor(weight).gather(0, world.rank() == 0 ? std::optional(out) : std::nullopt);
        if (world.rank() == 0) {
          EXPECT_TRUE(out.allclose(whole));
        }
      }
    });
  }
}

class EmbeddingBagTest : public ::testing::TestWithParam<int64_t> {
 protected:
  static F::EmbeddingBagFuncOptions options() {
    if (GetParam() == 0) return F::EmbeddingBagFuncOptions().mode(torch::kSum);
    if (GetParam() == 1) return F::EmbeddingBagFuncOptions().mode(torch::kMean);
    return F::EmbeddingBagFuncOptions().mode(torch::kMax);
  }
};

TEST_P(EmbeddingBagTest, GivesEachRankItsBags) {
  compare([](const Tensor& weight, int64_t rank) {
    // Bags of different lengths, an empty one among them; none on rank 2.
    const Tensor ids = ids_of(rank);
    const Tensor offsets =
        rank == 2 ? torch::empty({0}, torch::kLong) : torch::tensor({int64_t{0}, int64_t{2}, int64_t{2}});
    return F::embedding_bag(ids, weight, options().offsets(offsets));
  });
}

TEST_P(EmbeddingBagTest, TakesTablesOfIdsAndAPadding) {
  compare([](const Tensor& weight, int64_t rank) {
    return F::embedding_bag(ids_of(rank + 3).narrow(0, 0, 6).view({2, 3}), weight, options().padding_idx(1));
  });
}

TEST_P(EmbeddingBagTest, TakesTheLastOffset) {
  compare([](const Tensor& weight, int64_t rank) {
    const Tensor ids = ids_of(rank);
    return F::embedding_bag(ids, weight,
                            options().include_last_offset(true).offsets(torch::tensor({int64_t{0}, ids.size(0)})));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, EmbeddingBagTest, ::testing::Values(0, 1, 2));

TEST(EmbeddingBagTest, WeighsSums) {
  compare([](const Tensor& weight, int64_t rank) {
    const Tensor ids = ids_of(rank);
    const Tensor offsets = rank == 2 ? torch::empty({0}, torch::kLong) : torch::tensor({int64_t{0}, int64_t{1}});
    const Tensor weights = torch::arange(ids.size(0), torch::kDouble) - 1;
    return F::embedding_bag(
        ids, weight, F::EmbeddingBagFuncOptions().mode(torch::kSum).offsets(offsets).per_sample_weights(weights));
  });
}

}  // namespace
}  // namespace sherd::sharded
