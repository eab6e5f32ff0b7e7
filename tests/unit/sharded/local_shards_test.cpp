// LocalShardsWrapper as a tensor of one rank.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <unordered_set>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, c10::ScalarType dtype = c10::kFloat) {
  return torch::arange(c10::multiply_integers(shape), torch::kLong).remainder(11).sub(4).view(shape).to(dtype);
}

LocalShardsWrapper columns() { return {{numbers({4, 2}), numbers({4, 1}) + 10}, {{0, 0}, {0, 7}}}; }
LocalShardsWrapper nothing() {
  return {{}, {}, {.global_size = Dims{8, 3, 5}, .dtype = c10::kBFloat16, .device = c10::Device(c10::kCPU)}};
}

TEST(LocalShardsTest, SizeCountsTheRowsThatShardsHave) {
  const auto size = [](const std::vector<Dims>& sizes, const std::vector<Dims>& offsets) {
    std::vector<Tensor> shards;
    for (const Dims& shape : sizes) shards.push_back(torch::zeros(shape));
    return LocalShardsWrapper(shards, offsets).sizes().vec();
  };
  EXPECT_EQ(size({{4, 2}, {4, 1}}, {{0, 0}, {0, 2}}), (Dims{4, 3}));
  EXPECT_EQ(size({{4, 2}, {4, 1}}, {{0, 0}, {0, 7}}), (Dims{4, 3}));
  EXPECT_EQ(size({{4, 1}, {4, 2}}, {{0, 7}, {0, 0}}), (Dims{4, 3}));
  EXPECT_EQ(size({{1, 6}, {1, 6}}, {{0, 0}, {5, 0}}), (Dims{2, 6}));
  EXPECT_EQ(size({{3}, {5}}, {{10}, {0}}), (Dims{8}));
  EXPECT_EQ(size({{2, 3, 4}, {2, 3, 4}}, {{0, 0, 0}, {0, 3, 0}}), (Dims{2, 6, 4}));
  EXPECT_EQ(size({{2, 2}, {2, 2}}, {{0, 0}, {4, 4}}), (Dims{4, 4}));  // with holes
  EXPECT_EQ(size({{2, 2}, {2, 3}}, {{0, 0}, {2, 1}}), (Dims{4, 4}));  // columns 0-1 and 1-3
  EXPECT_EQ(size({{}}, {{}}), Dims());
  EXPECT_EQ(size({{0, 5}}, {{3, 0}}), (Dims{0, 5}));
  EXPECT_EQ(nothing().sizes().vec(), (Dims{0, 0, 0}));
}

TEST(LocalShardsTest, IsWhatItsShardsAre) {
  const LocalShardsWrapper x({numbers({4, 2}, c10::kBFloat16), numbers({4, 1}, c10::kBFloat16)}, {{0, 0}, {0, 7}});
  EXPECT_EQ(x.scalar_type(), c10::kBFloat16);
  EXPECT_EQ(x.device(), c10::Device(c10::kCPU));
  EXPECT_FALSE(x.is_meta());
  EXPECT_FALSE(x.is_pinned());
  EXPECT_FALSE(x.is_empty_shard());
  EXPECT_EQ(x.local_sizes(), (std::vector<Dims>{{4, 2}, {4, 1}}));
  EXPECT_EQ(x.local_offsets(), (std::vector<Dims>{{0, 0}, {0, 7}}));
  EXPECT_EQ(x.local_chunks(), (std::vector<ChunkMetadata>{{{0, 0}, {4, 2}}, {{0, 7}, {4, 1}}}));
  EXPECT_EQ(x.size_bytes(), 4 * 3 * 2);
  EXPECT_EQ(x.numel(), 12);
  const TensorStorageMetadata metadata = x.storage_metadata();
  EXPECT_EQ(metadata.properties, TensorProperties(c10::kBFloat16));
  EXPECT_EQ(metadata.size, (Dims{4, 3}));
  EXPECT_EQ(metadata.chunks, x.local_chunks());
  EXPECT_EQ(LocalShardsWrapper({numbers({4, 2})}, {{0, 2}}, {.global_size = Dims{4, 9}}).storage_metadata().size,
            (Dims{4, 9}));
}

TEST(LocalShardsTest, KeepsTheShardsThemselves) {
  const Tensor shard = numbers({4, 2});
  const LocalShardsWrapper x({shard, numbers({4, 1})}, {{0, 0}, {0, 7}});
  EXPECT_TRUE(x.local_shards()[0].is_same(shard));
  x.add_(1);
  EXPECT_TRUE(shard.equal(numbers({4, 2}) + 1));
}

TEST(LocalShardsTest, ARankWithoutShardsIsTruthful) {
  const LocalShardsWrapper x = nothing();
  EXPECT_EQ(x.dim(), 3);
  EXPECT_EQ(x.scalar_type(), c10::kBFloat16);
  EXPECT_TRUE(x.is_empty_shard());
  EXPECT_FALSE(x.is_meta());
  EXPECT_FALSE(x.is_pinned());
  EXPECT_TRUE(x.local_shards().empty());
  EXPECT_TRUE(x.local_sizes().empty());
  EXPECT_TRUE(x.local_offsets().empty());
  EXPECT_TRUE(x.chunk_list().empty());
  EXPECT_TRUE(x.write_items("x").empty());
  EXPECT_EQ(x.size_bytes(), 0);
  EXPECT_EQ(x.storage_metadata().size, (Dims{8, 3, 5}));
  EXPECT_EQ((x + 1).scalar_type(), c10::kBFloat16);
  EXPECT_EQ(x.to(c10::kFloat).scalar_type(), c10::kFloat);
  EXPECT_EQ((x > 0).scalar_type(), c10::kBool);
  EXPECT_TRUE(x.equal(nothing()));
  EXPECT_EQ(LocalShardsWrapper({}, {}, {.global_size = Dims{2}}).scalar_type(), c10::kFloat);
}

TEST(LocalShardsTest, AShardWithoutElementsIsEmptyButCanBeFound) {
  const LocalShardsWrapper x({torch::zeros({0, 5})}, {{3, 0}}, {.global_size = Dims{3, 5}});
  EXPECT_TRUE(x.is_empty_shard());
  EXPECT_TRUE(x.chunk_list().empty());
  EXPECT_TRUE(x.write_items("x").empty());
  EXPECT_EQ(x.shard({"x", Dims{3, 0}}).sizes().vec(), (Dims{0, 5}));
  EXPECT_EQ((x + 1).sizes().vec(), (Dims{0, 5}));
  const LocalShardsWrapper with_other({numbers({2, 5}), torch::zeros({0, 5})}, {{0, 0}, {3, 0}});
  EXPECT_FALSE(with_other.is_empty_shard());
  EXPECT_EQ(with_other.chunk_list().size(), 1);
  EXPECT_EQ(with_other.sizes().vec(), (Dims{2, 5}));
}

TEST(LocalShardsTest, ShardsOnTheMetaDevice) {
  const LocalShardsWrapper x({torch::empty({4, 2}, torch::kMeta), torch::empty({4, 1}, torch::kMeta)},
                             {{0, 0}, {0, 7}});
  EXPECT_TRUE(x.is_meta());
  EXPECT_EQ(x.device(), c10::Device(c10::kMeta));
  EXPECT_EQ(x.sizes().vec(), (Dims{4, 3}));
  const LocalShardsWrapper y(torch::zeros_like(x, torch::device(torch::kCPU)));
  EXPECT_FALSE(y.is_meta());
  EXPECT_TRUE(y.local_shards()[1].equal(torch::zeros({4, 1})));
}

// One shard after the other, as the operator would treat it alone.
TEST(LocalShardsTest, PointwiseOperatorsGoShardByShard) {
  const LocalShardsWrapper x = columns();
  const Tensor plain = numbers({4, 3}) * 2;
  const auto expect = [&](const Tensor& result, const std::function<Tensor(const Tensor&, const Tensor&)>& one) {
    const LocalShardsWrapper shards(result);
    EXPECT_EQ(shards.local_offsets(), x.local_offsets());
    EXPECT_TRUE(shards.local_shards()[0].equal(one(x.local_shards()[0], plain.narrow(1, 0, 2))));
    EXPECT_TRUE(shards.local_shards()[1].equal(one(x.local_shards()[1], plain.narrow(1, 2, 1))));
  };
  expect(x + 1, [](const Tensor& a, const Tensor&) { return a + 1; });
  expect(x * x, [](const Tensor& a, const Tensor&) { return a * a; });
  expect(x * plain, [](const Tensor& a, const Tensor& b) { return a * b; });
  expect(plain - x, [](const Tensor& a, const Tensor& b) { return b - a; });
  expect(x + plain.select(0, 0), [&](const Tensor& a, const Tensor& b) { return a + b.select(0, 0); });
  expect(torch::where(x > 0, x, torch::zeros({})), [](const Tensor& a, const Tensor&) { return a.clamp_min(0); });
  expect(x.sigmoid().log1p(), [](const Tensor& a, const Tensor&) { return a.sigmoid().log1p(); });
  expect(torch::zeros_like(x), [](const Tensor& a, const Tensor&) { return torch::zeros_like(a); });
  expect(x.to(c10::kLong), [](const Tensor& a, const Tensor&) { return a.to(c10::kLong); });
  expect(x.clone().mul_(3).clamp_max_(plain), [](const Tensor& a, const Tensor& b) { return (a * 3).clamp_max(b); });
  expect(x.clone().copy_(plain), [](const Tensor&, const Tensor& b) { return b; });
  expect(x.clone().zero_(), [](const Tensor& a, const Tensor&) { return torch::zeros_like(a); });
}

TEST(LocalShardsTest, WithHolesPlainTensorsTakePartAsIfTheyLayThere) {
  const LocalShardsWrapper x({torch::zeros({2, 2}), torch::zeros({2, 2})}, {{4, 4}, {0, 0}});
  const Tensor plain = numbers({4, 4});
  const LocalShardsWrapper sum(x + plain);
  EXPECT_TRUE(sum.local_shards()[0].equal(plain.slice(0, 2).slice(1, 2)));
  EXPECT_TRUE(sum.local_shards()[1].equal(plain.slice(0, 0, 2).slice(1, 0, 2)));
}

TEST(LocalShardsTest, ShardsNeedNotBeContiguous) {
  const Tensor shard = numbers({2, 4}).t();
  const LocalShardsWrapper x({shard, numbers({4, 1})}, {{0, 0}, {0, 2}});
  EXPECT_TRUE(LocalShardsWrapper(x * 2).local_shards()[0].equal(shard * 2));
}

TEST(LocalShardsTest, ReductionsOfAllElementsAreTheRanksOwn) {
  const LocalShardsWrapper x({numbers({2, 2}), numbers({2, 2}) + 5}, {{0, 0}, {4, 4}});
  EXPECT_EQ(x.sum().item<float>(), (numbers({2, 2}).sum() + (numbers({2, 2}) + 5).sum()).item<float>());
  EXPECT_EQ(x.amax().item<float>(), (numbers({2, 2}) + 5).max().item<float>());
  EXPECT_TRUE(x.isfinite().all().item<bool>());
  EXPECT_EQ(nothing().sum().item<float>(), 0);
  EXPECT_THROW(x.sum(0), c10::NotImplementedError);
  EXPECT_THROW(x.mean(), c10::NotImplementedError);
  EXPECT_THROW(x.matmul(torch::ones({4})), c10::NotImplementedError);
  EXPECT_THROW(x.t(), c10::NotImplementedError);
}

TEST(LocalShardsTest, AResultNeedsTheSameShards) {
  const LocalShardsWrapper x = columns();
  Tensor fits = x.clone();
  at::add_out(fits, x, x);
  EXPECT_TRUE(fits.equal(x + x));
  Tensor plain = torch::zeros({4, 3});
  EXPECT_THROW(at::add_out(plain, x, x), c10::NotImplementedError);
  EXPECT_THROW(plain.add_(x), c10::NotImplementedError);
  EXPECT_THROW(at::_foreach_add_({plain}, std::vector<Tensor>{x}), c10::ValueError);
  EXPECT_TRUE(plain.equal(torch::zeros({4, 3})));
}

TEST(LocalShardsTest, ForeachOperatorsAndLists) {
  const LocalShardsWrapper x = columns();
  const LocalShardsWrapper empty({}, {}, {.global_size = Dims{4, 9}});
  const std::vector<Tensor> sums =
      at::_foreach_add({x, empty, numbers({3})}, std::vector<Tensor>{x, empty, numbers({3})});
  EXPECT_TRUE(sums[0].equal(x + x));
  EXPECT_TRUE(LocalShardsWrapper(sums[1]).local_shards().empty());
  EXPECT_TRUE(sums[2].equal(numbers({3}) * 2));
  const Tensor y = x.clone();
  at::_foreach_mul_({y}, 3);
  EXPECT_TRUE(y.equal(x * 3));
}

TEST(LocalShardsTest, RandomNumbersAreDrawnShardByShard) {
  const LocalShardsWrapper x = columns();
  const LocalShardsWrapper drawn(x.clone().uniform_());
  EXPECT_TRUE(drawn.ge(0).logical_and(drawn.lt(1)).all().item<bool>());
  EXPECT_FALSE(drawn.local_shards()[0].narrow(1, 0, 1).equal(drawn.local_shards()[1]));
}

// What one optimizer does to the wrapper, it does to the shards alone.
template <class Optimizer, class Options>
void expect_steps_alike(const Options& options) {
  LocalShardsWrapper x = columns();
  x.requires_grad_();
  std::vector<Tensor> alone;
  for (const Tensor& shard : x.local_shards()) alone.push_back(shard.detach().clone().requires_grad_());
  Optimizer together({x}, options);
  Optimizer apart(alone, options);
  for (int step = 0; step < 3; ++step) {
    together.zero_grad();
    apart.zero_grad();
    (x * x + x).sum().backward();
    for (const Tensor& shard : alone) (shard * shard + shard).sum().backward();
    together.step();
    apart.step();
  }
  EXPECT_TRUE(is_local_shards(x.grad()));
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(x.local_shards()[i].equal(alone[i]));
}
TEST(LocalShardsTest, OptimizersStepOnIt) {
  expect_steps_alike<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  expect_steps_alike<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1));
  expect_steps_alike<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
}

TEST(LocalShardsTest, RequiresGradHasOneSource) {
  LocalShardsWrapper x = columns();
  EXPECT_FALSE(x.requires_grad());
  x.requires_grad_();
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(x.local_shards()[1].requires_grad());
  EXPECT_TRUE(x.storage_metadata().properties.requires_grad);
  static_cast<Tensor&>(x).set_requires_grad(false);
  EXPECT_FALSE(x.local_shards()[1].requires_grad());
  const LocalShardsWrapper of_parameters({torch::zeros({2}).requires_grad_()}, {{0}});
  EXPECT_TRUE(of_parameters.requires_grad());
}

TEST(LocalShardsTest, GradientsLieInTheShards) {
  LocalShardsWrapper x = columns();
  x.requires_grad_();
  const Tensor factor = numbers({4, 3});
  (x * factor).sum().backward();
  const LocalShardsWrapper grad(x.grad());
  EXPECT_EQ(grad.local_offsets(), x.local_offsets());
  EXPECT_TRUE(grad.local_shards()[0].equal(factor.narrow(1, 0, 2)));
  EXPECT_TRUE(grad.local_shards()[1].equal(factor.narrow(1, 2, 1)));
  x.sum().backward();  // adds a plain tensor of ones
  EXPECT_TRUE(LocalShardsWrapper(x.grad()).local_shards()[1].equal(factor.narrow(1, 2, 1) + 1));
}

TEST(LocalShardsTest, DetachMakesAnotherBoxOfTheSameMemory) {
  LocalShardsWrapper x = columns();
  x.requires_grad_();
  const LocalShardsWrapper detached(x.detach());
  EXPECT_FALSE(detached.is_same(x));
  EXPECT_FALSE(detached.requires_grad());
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(x.local_shards()[0].requires_grad());
  EXPECT_FALSE(detached.local_shards()[0].requires_grad());
  detached.fill_(7);
  for (const Tensor& shard : x.local_shards()) EXPECT_TRUE(shard.eq(7).all().item<bool>());
}

TEST(LocalShardsTest, CloneSharesNothing) {
  const LocalShardsWrapper x = columns();
  for (const auto format : {std::optional<c10::MemoryFormat>(), std::optional(c10::MemoryFormat::Preserve),
                            std::optional(c10::MemoryFormat::Contiguous)}) {
    const LocalShardsWrapper copy(x.clone(format));
    EXPECT_TRUE(copy.equal(x));
    copy.zero_();
    EXPECT_FALSE(copy.equal(x));
  }
}

TEST(LocalShardsTest, EqualComparesDataAndPlaces) {
  const LocalShardsWrapper x = columns();
  const auto& [a, b] = std::pair(x.local_shards()[0], x.local_shards()[1]);
  EXPECT_TRUE(x.equal(LocalShardsWrapper({a.clone(), b.clone()}, {{0, 0}, {0, 7}})));
  EXPECT_TRUE(x.equal(LocalShardsWrapper({b, a}, {{0, 7}, {0, 0}})));
  EXPECT_TRUE(x.equal(columns().requires_grad_()));
  EXPECT_FALSE(x.equal(LocalShardsWrapper({a, b}, {{0, 0}, {0, 8}})));
  EXPECT_FALSE(x.equal(LocalShardsWrapper({a, b + 1}, {{0, 0}, {0, 7}})));
  EXPECT_FALSE(x.equal(LocalShardsWrapper({a}, {{0, 0}})));
  EXPECT_FALSE(x.equal(LocalShardsWrapper({a.to(c10::kDouble), b.to(c10::kDouble)}, {{0, 0}, {0, 7}})));
  EXPECT_TRUE(x.allclose(x + 1e-9));
  EXPECT_THROW((void)x.equal(torch::zeros({4, 3})), c10::TypeError);
}

TEST(LocalShardsTest, ViewsKeepTheSize) {
  const LocalShardsWrapper x = columns();
  for (const Dims& size : {Dims{4, 3}, Dims{-1, 3}, Dims{4, -1}}) {
    const LocalShardsWrapper view(x.view(size));
    EXPECT_TRUE(view.local_shards()[0].is_alias_of(x.local_shards()[0]));
    EXPECT_EQ(view.local_offsets(), x.local_offsets());
  }
  EXPECT_THROW(x.view({12}), c10::ValueError);
  EXPECT_THROW(LocalShardsWrapper({numbers({4, 2})}, {{0, 2}}).view({2, 4}), c10::ValueError);
  EXPECT_TRUE(x.view_as(x).equal(x));
}

TEST(LocalShardsTest, NewTensorsHaveWhatWasAskedFor) {
  const LocalShardsWrapper x = columns();
  const Tensor other = x.new_empty({7, 7}, torch::dtype(c10::kDouble));
  EXPECT_FALSE(is_local_shards(other));
  EXPECT_EQ(other.sizes().vec(), (Dims{7, 7}));
  EXPECT_EQ(other.scalar_type(), c10::kDouble);
  EXPECT_TRUE(x.new_full({2}, 3).equal(torch::full({2}, 3.0F)));
  const LocalShardsWrapper same(x.new_zeros({4, 3}, torch::dtype(c10::kDouble)));
  EXPECT_EQ(same.scalar_type(), c10::kDouble);
  EXPECT_TRUE(same.local_shards()[1].equal(torch::zeros({4, 1}, c10::kDouble)));
  const LocalShardsWrapper strided(x.new_empty_strided({4, 3}, {3, 1}));
  EXPECT_EQ(strided.local_sizes(), x.local_sizes());
  EXPECT_TRUE(strided.local_shards()[1].is_contiguous());
}

TEST(LocalShardsTest, HashIsByIdentityAndPrintsNameTheShards) {
  const LocalShardsWrapper x = columns();
  const LocalShardsWrapper again(x);
  std::unordered_set<size_t> hashes = {std::hash<LocalShardsWrapper>()(x), std::hash<LocalShardsWrapper>()(again)};
  EXPECT_EQ(hashes.size(), 1);
  hashes.insert(std::hash<LocalShardsWrapper>()(columns()));
  EXPECT_EQ(hashes.size(), 2);
  EXPECT_EQ(to_string(x), "LocalShardsWrapper f32[4, 3] on cpu: [0:4, 0:2], [0:4, 7:8]");
  EXPECT_EQ(to_string(nothing()), "LocalShardsWrapper bf16[0, 0, 0] on cpu: none");
  std::ostringstream text;
  text << LocalShardsWrapper({torch::tensor({5})}, {{3}});
  EXPECT_EQ(text.str(), "LocalShardsWrapper i64[1] on cpu: [3:4]\n[3:4]\n 5\n[ CPULongType{1} ]");
}

TEST(LocalShardsTest, ShardsAreFoundByHintAndByOffset) {
  const LocalShardsWrapper x({numbers({4, 2}), numbers({4, 1})}, {{0, 0}, {0, 7}}, {.global_size = Dims{4, 9}});
  for (const auto& lookup : {std::function([&](const ShardIndex& index) { return x.shard(index); }),
                             std::function([&](const ShardIndex& index) { return checkpointable(x)->shard(index); })}) {
    EXPECT_TRUE(lookup({"x", Dims{0, 7}}).is_alias_of(x.local_shards()[1]));
    EXPECT_TRUE(lookup({"x", Dims{0, 7}, 1}).is_alias_of(x.local_shards()[1]));
    EXPECT_TRUE(lookup({"x", Dims{0, 7}, 0}).is_alias_of(x.local_shards()[1]));  // the offsets count
    EXPECT_TRUE(lookup({"x", Dims{0, 7}, 9}).is_alias_of(x.local_shards()[1]));
    EXPECT_TRUE(lookup({"x", {}, 0}).is_alias_of(x.local_shards()[0]));
    EXPECT_THROW(lookup({"x", Dims{0, 1}}), c10::ValueError);
    EXPECT_THROW(lookup({"x", Dims{0}}), c10::ValueError);
    EXPECT_THROW(lookup({"x"}), c10::ValueError);
  }
  EXPECT_THROW(nothing().shard({"x", Dims{0, 0, 0}}), c10::ValueError);
}

TEST(LocalShardsTest, WriteItemsNameEveryShard) {
  LocalShardsWrapper x({numbers({4, 2}), numbers({4, 1})}, {{0, 0}, {0, 7}}, {.global_size = Dims{4, 9}});
  x.requires_grad_();
  const std::vector<WriteItem> items = x.write_items("table");
  ASSERT_EQ(items.size(), 2);
  EXPECT_EQ(items[1].name, "table");
  EXPECT_EQ(items[1].chunk, (ChunkMetadata{{0, 7}, {4, 1}}));
  EXPECT_EQ(items[1].index(), (ShardIndex{"table", Dims{0, 7}}));
  EXPECT_EQ(items[1].global_size, (Dims{4, 9}));
  EXPECT_TRUE(items[1].properties.requires_grad);
  EXPECT_FALSE(items[1].tensor.requires_grad());
  EXPECT_TRUE(items[1].tensor.is_alias_of(x.local_shards()[1]));
  EXPECT_THROW(columns().write_items("table"), c10::ValueError);  // of a tensor whose size nobody said
}

TEST(LocalShardsTest, WaitingForShardsThatAreThere) {
  const auto wait = c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::wait_tensor", "");
  const LocalShardsWrapper x = columns();
  const Tensor there = wait.typed<Tensor(const Tensor&)>().call(x);
  EXPECT_TRUE(there.equal(x));
}

}  // namespace
}  // namespace sherd::testing
