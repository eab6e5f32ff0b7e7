// What a ShardedTensor promises beside the operators: how it is made, its parts, its groups, its other forms.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::sharded {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, c10::ScalarType dtype = c10::kDouble) {
  return torch::arange(c10::multiply_integers(shape), torch::kLong).view(shape).to(dtype);
}

ShardingSpec chunks(int64_t dim, const std::vector<int64_t>& ranks, const char* device = "cpu") {
  std::vector<RemoteDevice> placements;
  for (const int64_t rank : ranks) placements.emplace_back(rank, c10::Device(device));
  return ChunkShardingSpec(dim, std::move(placements));
}

Tensor gathered(const Tensor& tensor, int64_t dst = 0) {
  const ShardedTensor sharded(tensor);
  if (!sharded.group()) return {};
  const bool here = sharded.group()->rank() == dst;
  const Tensor out = torch::empty(tensor.sizes(), tensor.dtype());
  sharded.gather(dst, here ? std::optional(out) : std::nullopt);
  return here ? out : Tensor();
}

void expect_gathers(const Tensor& tensor, const Tensor& whole, int64_t dst = 0) {
  const Tensor out = gathered(tensor, dst);
  if (out.defined()) {
    EXPECT_TRUE(out.equal(whole));
  }
}

// A result may be a ShardedTensor or plain.
Tensor gathered_or_plain(const Tensor& tensor) {
  return is_sharded_tensor(tensor) ? full_tensor(to_dtensor(ShardedTensor(tensor))) : tensor;
}

TEST(FactoriesTest, FillTheirShards) {
  spawn(3, [](World& world) {
    const auto spec = chunks(0, {2, 0, 1});
    const ShardedTensor tensor = ones(spec, {5, 2}, {});
    EXPECT_EQ(tensor.local_shards()[0].metadata, spec.build_metadata({5, 2}).shards_metadata[(world.rank() + 1) % 3]);
    expect_gathers(tensor, torch::ones({5, 2}));
    expect_gathers(zeros(spec, {5, 2}), torch::zeros({5, 2}));
    EXPECT_EQ(full(spec, {4}, 7).scalar_type(), c10::kLong);
    EXPECT_EQ(full(spec, {4}, true).scalar_type(), c10::kBool);
    EXPECT_EQ(full(spec, {4}, 7.5).scalar_type(), c10::kFloat);
    ShardedTensorOptions options;
    options.dtype = c10::kHalf;
    options.requires_grad = true;
    const ShardedTensor half = full(spec, {4}, 7, options);
    EXPECT_EQ(half.scalar_type(), c10::kHalf);
    EXPECT_TRUE(half.requires_grad() && half.is_leaf() && half.metadata().tensor_properties.requires_grad);
    EXPECT_EQ(to_string(tensor).substr(0, 57), "ShardedTensor f32[5, 2] in 3 shards over ranks 0-2, here ");
  });
}

TEST(FactoriesTest, LikeOnesKeepDtypeAndGroup) {
  spawn(3, [](World& world) {
    ShardedTensorOptions options;
    options.ranks = std::vector<int64_t>{1, 2};
    options.dtype = c10::kDouble;
    const ShardedTensor tensor = zeros(chunks(0, {1, 2}), {4, 2}, options);
    for (const Tensor& like : {torch::zeros_like(tensor), torch::ones_like(tensor), torch::empty_like(tensor),
                               torch::full_like(tensor, 3), torch::rand_like(tensor), torch::randn_like(tensor)}) {
      EXPECT_EQ(like.scalar_type(), c10::kDouble);
      EXPECT_EQ(ShardedTensor(like).ranks(), (std::vector<int64_t>{1, 2}));
      EXPECT_EQ(ShardedTensor(like).local_shards().size(), world.rank() == 0 ? 0U : 1U);
    }
  });
}

TEST(GroupTest, APartOfTheWorldWithoutRankZero) {
  spawn(4, [](World& world) {
    GroupOptions options;
    options.ranks = std::vector<int64_t>{3, 1};
    const Tensor whole = numbers({5, 3});
    const ShardedTensor tensor = shard_tensor(whole, chunks(0, {1, 3}), 0, options);
    const bool member = world.rank() % 2 == 1;
    EXPECT_EQ(tensor.group().has_value(), member);
    EXPECT_EQ(tensor.local_shards().size(), member ? 1U : 0U);
    expect_gathers(tensor, whole, 0);  // place 0 is rank 3
    expect_gathers(tensor, whole, 1);
    const ShardedTensor moved = tensor.reshard(chunks(1, {3, 1}));
    expect_gathers(moved, whole, 1);
    const Tensor doubled = tensor * 2;
    expect_gathers(doubled, whole * 2);
  });
}

TEST(GroupTest, AScopeNamesItAndDoesNotNest) {
  spawn(2, [](World& world) {
    const Group alone = world.group({world.rank()});
    {
      const GroupScope scope(alone);
      EXPECT_EQ(zeros(chunks(0, {world.rank()}), {4}).ranks(), std::vector<int64_t>{world.rank()});
      EXPECT_THROW(GroupScope{alone}, c10::Error);
    }
    EXPECT_EQ(zeros(chunks(0, {0, 1}), {4}).ranks().size(), 2U);
  });
}

TEST(FromShardsTest, RanksWithNoneOneAndSeveral) {
  spawn(3, [](World& world) {
    const Tensor whole = numbers({4, 6});
    std::vector<Shard> shards;
    const auto add = [&](int64_t row, int64_t col, int64_t rows, int64_t cols) {
      shards.push_back(Shard::from_tensor_and_offsets(whole.narrow(0, row, rows).narrow(1, col, cols).contiguous(),
                                                      {row, col}, world.rank()));
    };
    if (world.rank() == 0) add(0, 0, 4, 2);
    if (world.rank() == 2) {
      add(2, 2, 2, 4);
      add(0, 2, 2, 3);
      add(0, 5, 2, 1);
    }
    const ShardedTensor tensor = init_from_local_shards(shards, Dims{4, 6});
    expect_gathers(tensor, whole, 1);
    EXPECT_EQ(tensor.local_shards().size(), shards.size());
    if (world.rank() == 0) {
      EXPECT_EQ(tensor.local_tensor().size(1), 2);
    } else {
      EXPECT_THROW(tensor.local_tensor(), c10::NotImplementedError);
    }
  });
}

TEST(FromShardsTest, OpenSizesAreFoundAlongAnyDim) {
  spawn(4, [](World& world) {
    for (const int64_t dim : {0, 1}) {
      // Rank r has r shards, each of r + 1 rows or columns; the offsets along the open dim do not count.
      std::vector<Shard> shards;
      for (int64_t i = 0; i < world.rank(); ++i) {
        Dims size{2, 2};
        size[static_cast<size_t>(dim)] = world.rank() + 1;
        shards.push_back(
            Shard::from_tensor_and_offsets(torch::full(size, world.rank() * 10 + i), {0, 0}, world.rank()));
      }
      std::vector<std::optional<int64_t>> size{2, 2};
      size[static_cast<size_t>(dim)] = std::nullopt;
      const ShardedTensor tensor = init_from_local_shards(shards, size);
      EXPECT_EQ(tensor.size(dim), 2 + 2 * 3 + 3 * 4);
      const Tensor out = gathered(tensor);
      if (world.rank() == 0) {
        const Tensor row = out.select(1 - dim, 1);
        EXPECT_EQ(row[0].item<int64_t>(), 10);
        EXPECT_EQ(row[2].item<int64_t>(), 20);
        EXPECT_EQ(row[5].item<int64_t>(), 21);
        EXPECT_EQ(row[-1].item<int64_t>(), 32);
      }
    }
  });
}

TEST(FromShardsTest, OneExchangeForManyFacts) {
  spawn(2, [](World& world) {
    const Shard shard = Shard::from_tensor_and_offsets(torch::ones({2, 3}), {2 * world.rank(), 0}, world.rank());
    const CommRecorder recorder;
    const ShardedTensor tensor = init_from_local_shards({shard}, Dims{4, 3});
    EXPECT_EQ(recorder.calls().size(), 1U) << recorder.to_string();
    EXPECT_TRUE(tensor.local_tensor().is_same(shard.tensor));
    EXPECT_EQ(to_string(tensor.sharding_spec()), "ChunkShardingSpec(dim=0, rank:0/cpu, rank:1/cpu)");
    // With the metadata of all at hand nothing is sent, and the order of the shards does not matter.
    const CommRecorder silent;
    const auto again = ShardedTensor::init_from_local_shards_and_global_metadata({shard}, tensor.metadata());
    const auto base = ShardedTensorBase::init_from_local_shards_and_global_metadata({shard}, tensor.metadata());
    EXPECT_EQ(silent.calls().size(), 0U);
    EXPECT_EQ(again.metadata(), tensor.metadata());
    EXPECT_EQ(base.local_shards().size(), 1U);
    EXPECT_TRUE(again.equal(tensor));
    EXPECT_TRUE(ShardedTensorBase(base + 1).local_shards()[0].tensor.equal(torch::full({2, 3}, 2.0)));
  });
}

TEST(GatherTest, KeepsEveryBit) {
  spawn(2, [](World& world) {
    const auto check = [&](const Tensor& whole) { expect_gathers(shard_tensor(whole, chunks(0, {1, 0})), whole); };
    check(torch::tensor({(int64_t{1} << 53) + 1, int64_t{16777217}, int64_t{-1}}));
    check(torch::tensor({1.1, 2.2, 3.3}, torch::kDouble));
    check(torch::tensor({true, false, true}));
    check(torch::tensor({1.5, 3.25, -2.0}, torch::kBFloat16));
    // In another dtype where that is asked for.
    const ShardedTensor tensor = shard_tensor(torch::tensor({1.75, 2.5, 3.0}, torch::kDouble), chunks(0, {0, 1}));
    const Tensor out = torch::empty({3}, torch::kLong);
    GatherOptions options;
    options.dtype = c10::kLong;
    options.enforce_dtype = true;
    tensor.gather(1, world.rank() == 1 ? std::optional(out) : std::nullopt, options);
    if (world.rank() == 1) {
      EXPECT_TRUE(out.equal(torch::tensor({1, 2, 3}, torch::kLong)));
    }
    // Into memory that lies otherwise.
    const Tensor columns = torch::empty({2, 3}).t();
    const ShardedTensor rows = shard_tensor(numbers({3, 2}, c10::kFloat), chunks(0, {0, 1}));
    rows.gather(0, world.rank() == 0 ? std::optional(columns) : std::nullopt);
    if (world.rank() == 0) {
      EXPECT_TRUE(columns.equal(numbers({3, 2}, c10::kFloat)));
    }
  });
}

TEST(GatherTest, ScalarsAndEmptyTensors) {
  spawn(2, [](World&) {
    const ShardingSpec scalar = EnumerableShardingSpec({ShardMetadata({}, {}, "rank:1/cpu")});
    const ShardedTensor one = shard_tensor(torch::tensor(3.5), scalar);
    expect_gathers(one, torch::tensor(3.5));
    expect_gathers(one * 2, torch::tensor(7.0));
    EXPECT_EQ((one * 2).item<double>(), 7.0);
    expect_gathers(zeros(chunks(0, {0, 1}), {0, 3}), torch::zeros({0, 3}));
  });
}

TEST(ReshardTest, InPlaceEveryHandleSeesIt) {
  spawn(3, [](World&) {
    ShardedTensor tensor = shard_tensor(numbers({4, 3}), chunks(0, {0, 1, 2}));
    const Tensor handle = tensor;
    tensor.reshard_(chunks(1, {1, 2, 0}));
    EXPECT_TRUE(ShardedTensor(handle).sharding_spec() == chunks(1, {1, 2, 0}));
    expect_gathers(handle, numbers({4, 3}));
    const ShardedTensor same = tensor.reshard(chunks(1, {1, 2, 0}));
    EXPECT_TRUE(same.is_same(tensor));
  });
}

TEST(NestedTest, AShardMayBeShardedItself) {
  // Two pairs of ranks: between the pairs rows are cut, inside a pair columns.
  spawn(4, [](World& world) {
    const Tensor whole = numbers({4, 6});
    const int64_t pair = world.rank() / 2;
    GroupOptions inside;
    inside.ranks = std::vector<int64_t>{2 * pair, 2 * pair + 1};
    const ShardedTensor inner =
        shard_tensor(whole.narrow(0, 2 * pair, 2).contiguous(), chunks(1, *inside.ranks), 0, inside);
    GroupOptions across;
    across.ranks = std::vector<int64_t>{world.rank() % 2, world.rank() % 2 + 2};
    const ShardedTensor outer = init_from_local_shards(
        {Shard::from_tensor_and_offsets(inner, {2 * pair, 0}, world.rank())}, Dims{4, 6}, across);
    const Tensor doubled = outer * 2 + 1;
    expect_gathers(doubled, whole * 2 + 1);
    EXPECT_TRUE(is_sharded_tensor(ShardedTensor(doubled).local_tensor()));
    EXPECT_EQ(torch::zeros_like(outer).sizes(), whole.sizes());
    EXPECT_TRUE(is_sharded_tensor(ShardedTensor(torch::zeros_like(outer)).local_tensor()));
    Tensor leaf = outer.detach().requires_grad_();
    (leaf * whole).mul(leaf).sum().backward();
    expect_gathers(leaf.grad(), 2 * whole * whole);
  });
}

TEST(DTensorTest, SharesMemoryBothWays) {
  spawn(4, [](World& world) {
    const Tensor whole = numbers({6, 5}).requires_grad_();
    const ShardedTensor tensor = shard_tensor(whole, chunks(0, {3, 1, 0, 2}));
    const Tensor dtensor = to_dtensor(tensor);
    EXPECT_EQ(to_string(mesh_of(dtensor)), "[4]{3, 1, 0, 2}");
    EXPECT_EQ(placements_of(dtensor), Placements{sherd::Shard(0)});
    EXPECT_EQ(to_local(dtensor).data_ptr(), tensor.local_tensor().data_ptr());
    EXPECT_TRUE(full_tensor(dtensor).equal(whole));
    (dtensor * dtensor).sum().backward();
    expect_gathers(tensor.grad(), 2 * whole.detach());
    const ShardedTensor back = from_dtensor(dtensor.detach());
    EXPECT_TRUE(back.sharding_spec() == tensor.sharding_spec());
    EXPECT_EQ(back.local_tensor().data_ptr(), tensor.local_tensor().data_ptr());
    // A grid is a mesh of two axes, uneven ones too.
    std::vector<ShardMetadata> cells;
    const Dims rows{0, 1, 6};
    const Dims columns{0, 3, 5};
    for (size_t i = 0; i < 2; ++i) {
      for (size_t k = 0; k < 2; ++k) {
        cells.push_back({{rows[i], columns[k]},
                         {rows[i + 1] - rows[i], columns[k + 1] - columns[k]},
                         RemoteDevice(static_cast<int64_t>(3 - 2 * i - k), c10::Device(c10::kCPU))});
      }
    }
    const ShardedTensor grid = ShardedTensor(tensor.detach()).reshard(EnumerableShardingSpec(cells));
    EXPECT_EQ(placements_of(to_dtensor(grid)), (Placements{Ragged(0, {0, 1, 6}), sherd::Shard(1)}));
    EXPECT_TRUE(full_tensor(to_dtensor(grid)).equal(whole));
    const auto mesh = DeviceMesh("cpu", Mesh({{"a", 2}, {"b", 2}}, {3, 2, 1, 0}));
    const Tensor named = to_dtensor(grid, mesh, {Ragged(0, {0, 1, 6}), sherd::Shard(1)});
    EXPECT_EQ(sherd::to_string(named), "f64[6@a(cuts=0:1:6), 5@b] on [a=2, b=2]{3, 2, 1, 0}");
    EXPECT_THROW(to_dtensor(grid, mesh, {sherd::Shard(0), sherd::Shard(1)}), c10::ValueError);
    EXPECT_EQ(world.size(), 4);
  });
}

TEST(CompareTest, AsksAllRanks) {
  spawn(3, [](World& world) {
    const ShardedTensor a = shard_tensor(numbers({5, 2}), chunks(0, {0, 1, 2}));
    const Tensor b = a.clone();
    EXPECT_TRUE(a.equal(b));
    EXPECT_TRUE(a.allclose(b + 1e-9));
    if (world.rank() == 1) ShardedTensor(b).local_tensor().fill_(-1);
    EXPECT_FALSE(a.equal(b));
    EXPECT_FALSE(a.allclose(b));
    EXPECT_FALSE(a.equal(a.reshard(chunks(1, {0, 1, 2}))));
    EXPECT_THROW(a.equal(numbers({5, 2})), c10::TypeError);
    // What was compared can be copied over, from any rectangles.
    b.copy_(a.reshard(chunks(1, {2, 0, 1})));
    EXPECT_TRUE(a.equal(b));
  });
}

TEST(StateTest, GoesThroughBytes) {
  std::vector<std::vector<char>> files(3);
  const Tensor whole = numbers({5, 4}, c10::kBFloat16);
  spawn(3, [&](World& world) {
    const ShardedTensor tensor = shard_tensor(whole.clone().requires_grad_(), chunks(0, {2, 0, 1}));
    files[static_cast<size_t>(world.rank())] = save(tensor);
    const ShardedTensor again = load(save(tensor));
    EXPECT_TRUE(again.equal(tensor));
    EXPECT_TRUE(again.requires_grad());
    EXPECT_TRUE(again.sharding_spec() == tensor.sharding_spec());
    // The part of another rank is refused.
    const auto other = files[static_cast<size_t>(world.rank())];
    ShardedTensorState state = load_state(other);
    state.global_rank = 7;
    EXPECT_THROW(ShardedTensor::from_state(state), c10::Error);
    for (size_t cut : {size_t{0}, size_t{3}, size_t{40}, other.size() / 2, other.size() - 1}) {
      EXPECT_THROW(load_state({other.begin(), other.begin() + static_cast<int64_t>(cut)}), c10::ValueError) << cut;
    }
  });
  // Another world: its ranks have some of the files each.
  spawn(2, [&](World& world) {
    std::vector<ShardedTensorState> states;
    for (size_t i = 0; i < 3; ++i) {
      if (i % 2 == static_cast<size_t>(world.rank())) states.push_back(load_state(files[i]));
    }
    const ShardedTensor tensor = ShardedTensor::rebuild(states, chunks(1, {1, 0}));
    EXPECT_TRUE(tensor.requires_grad());
    expect_gathers(tensor, whole);
  });
}

TEST(MetaTest, NeedsNoMemory) {
  spawn(2, [](World&) {
    const ShardedTensor tensor = zeros(chunks(0, {0, 1}, "meta"), {1 << 20, 1 << 20});
    EXPECT_TRUE(tensor.is_meta());
    EXPECT_TRUE((tensor * 2).is_meta());
    EXPECT_EQ(tensor.local_tensor().size(0), 1 << 19);
    EXPECT_TRUE(tensor.reshard(chunks(1, {0, 1}, "meta")).is_meta());
  });
}

TEST(InitTest, SeesTheGlobalSize) {
  spawn(2, [](World&) {
    manual_seed(1);
    const ShardedTensor tensor = zeros(chunks(1, {0, 1}), {200, 50});
    torch::nn::init::kaiming_uniform_(tensor, std::sqrt(5.0));
    const double bound = 1 / std::sqrt(50.0);  // of the whole fan
    EXPECT_LE(tensor.abs().max().item<double>(), bound);
    EXPECT_GT(tensor.abs().max().item<double>(), 0.99 * bound);
    torch::nn::init::constant_(tensor, 2);
    EXPECT_EQ(tensor.sum().item<double>(), 20000);
  });
}

TEST(CudaTest, GoesThereAndBack) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  spawn(2, [](World& world) {
    const Tensor whole = numbers({5, 6});
    const ShardedTensor tensor = shard_tensor(whole, chunks(0, {1, 0}));
    const ShardedTensor there(tensor.to(torch::kCUDA));
    EXPECT_TRUE(there.is_cuda() && there.local_tensor().is_cuda());
    EXPECT_EQ(to_string(there.sharding_spec()), "ChunkShardingSpec(dim=0, rank:1/cuda, rank:0/cuda)");
    EXPECT_EQ((there * 2).sum().item<double>(), (whole * 2).sum().item<double>());
    const ShardedTensor columns = there.reshard(chunks(1, {0, 1}, "cuda"));
    const Tensor out = torch::empty({5, 6}, torch::kDouble);  // on the CPU
    columns.gather(0, world.rank() == 0 ? std::optional(out) : std::nullopt);
    if (world.rank() == 0) {
      EXPECT_TRUE(out.equal(whole));
    }
    expect_gathers(columns.to(torch::kCPU), whole);
    EXPECT_TRUE(columns.cpu().equal(ShardedTensor(columns.cpu())));
    ShardedTensorOptions options;
    options.pin_memory = true;
    const ShardedTensor pinned = zeros(chunks(0, {0, 1}), {4}, options);
    EXPECT_TRUE(pinned.is_pinned() && pinned.local_tensor().is_pinned());
    EXPECT_TRUE(pinned.metadata().tensor_properties.pin_memory);
    Tensor leaf = there.detach().requires_grad_();
    (leaf * leaf).sum().backward();
    expect_gathers(leaf.grad().cpu(), 2 * whole);
  });
}

TEST(CustomOpTest, IsAskedFirstAndBySpec) {
  custom_sharding_spec_op("EnumerableShardingSpec", "aten::erfinv",
                          [](std::vector<c10::IValue>& stack) { stack = {torch::full({1}, 5)}; });
  EXPECT_TRUE(has_custom_sharding_spec_op("EnumerableShardingSpec", "aten::erfinv"));
  EXPECT_FALSE(has_custom_sharding_spec_op("ChunkShardingSpec", "aten::erfinv"));
  spawn(1, [](World&) {
    const ShardedTensor cut = zeros(chunks(0, {0}), {4});
    const ShardedTensor listed = zeros(EnumerableShardingSpec({ShardMetadata({0}, {4}, "rank:0/cpu")}), {4});
    EXPECT_EQ(torch::erfinv(listed).item<int64_t>(), 5);
    EXPECT_EQ(torch::erfinv(cut).size(0), 4);
    custom_sharded_op("aten::erfinv", [](std::vector<c10::IValue>& stack) { stack = {torch::full({1}, 6)}; });
    EXPECT_EQ(torch::erfinv(listed).item<int64_t>(), 6);
  });
}

TEST(ModulesTest, ParametersAreShardedInPlaceAndTrain) {
  const auto make = [] {
    torch::manual_seed(3);
    return torch::nn::Linear(torch::nn::LinearOptions(4, 6));
  };
  const Tensor input = numbers({3, 4}, c10::kFloat) / 5;
  auto dense = make();
  torch::optim::SGD dense_steps(dense->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    dense_steps.zero_grad();
    dense->forward(input).pow(2).sum().backward();
    dense_steps.step();
  }
  std::vector<torch::nn::Linear> modules;
  for (int i = 0; i < 4; ++i) modules.push_back(make());  // in this thread: ranks share torch's generator
  spawn(2, [&](World& world) {
    for (const bool local : {false, true}) {
      torch::nn::Linear module = modules[static_cast<size_t>(2 * world.rank() + (local ? 1 : 0))];
      const Tensor handle = module->weight;
      ShardingPlan plan;
      plan.plan.emplace("weight", chunks(0, {1, 0}));
      shard_module(module, plan);
      EXPECT_TRUE(is_sharded_tensor(handle));
      EXPECT_EQ(sharded_state_dict(*module).size(), 1U);
      torch::optim::SGD steps(module->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      ShardedOptimizer shards(named_params_with_sharded_tensor(*module), [](std::vector<Tensor> parameters) {
        return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
      });
      for (int step = 0; step < 3; ++step) {
        local ? shards.zero_grad() : steps.zero_grad();
        input.mm(module->weight.t()).add(module->bias).pow(2).sum().backward();
        if (local) {
          shards.step();
        } else {
          steps.step();
        }
      }
      const Tensor out = gathered(module->weight.detach());
      if (out.defined()) {
        EXPECT_TRUE(out.allclose(dense->weight, 1e-4, 1e-5));
      }
      EXPECT_TRUE(gathered_or_plain(module->bias).allclose(dense->bias, 1e-4, 1e-5));
      if (local) {
        const auto state =
            shards.state_dict({{"momentum_buffer", [](const torch::optim::OptimizerParamState& s) {
                                  return static_cast<const torch::optim::SGDParamState&>(s).momentum_buffer();
                                }}});
        EXPECT_EQ(ShardedTensor(state.at("weight.momentum_buffer")).metadata().shards_metadata,
                  ShardedTensor(module->weight).metadata().shards_metadata);
      }
    }
  });
}

TEST(ModulesTest, ASharderReplacesItsModule) {
  struct Halves : Sharder {
    std::shared_ptr<torch::nn::Module> shard(const std::shared_ptr<torch::nn::Module>&) override {
      return std::make_shared<torch::nn::LinearImpl>(2, 2);
    }
  };
  spawn(1, [](World&) {
    struct Net : torch::nn::Module {
      Net() {
        register_module("tower", torch::nn::Linear(4, 4));
        register_module("tower2", torch::nn::Linear(4, 4));
      }
    } net;
    ShardingPlan plan;
    plan.plan.emplace("tower", std::make_shared<Halves>());
    plan.plan.emplace("tower2.weight", chunks(0, {0}));
    shard_module(net, plan);
    EXPECT_EQ(net.named_parameters()["tower.weight"].size(0), 2);
    EXPECT_TRUE(is_sharded_tensor(net.named_parameters()["tower2.weight"]));
    plan.plan.emplace("tower.weight", chunks(0, {0}));
    EXPECT_THROW(shard_module(net, plan), c10::Error);
  });
}

TEST(ModulesTest, OutputsGoWhereThePlanSays) {
  spawn(2, [](World& world) {
    ShardingPlan plan;
    plan.output_plan.emplace("fc", chunks(1, {0, 1}));
    plan.return_local_tensor = {"fc"};
    const ShardedTensor y = shard_tensor(numbers({4, 6}), chunks(0, {0, 1}));
    const Tensor local = shard_output(plan, "fc", y);
    EXPECT_FALSE(is_sharded_tensor(local));
    EXPECT_TRUE(local.equal(numbers({4, 6}).narrow(1, 3 * world.rank(), 3)));
    EXPECT_TRUE(shard_output(plan, "other", y).is_same(y));
  });
}

TEST(RemoteTest, ShardsAreFetched) {
  spawn(3, [](World& world) {
    init_rpc(world, {.name = "trainer" + std::to_string(world.rank())});
    {
      GroupOptions options;
      options.init_rrefs = true;
      const ShardedTensor tensor = shard_tensor(numbers({5, 2}), chunks(0, {0, 1, 2}), 0, options);
      const auto remote = tensor.remote_shards();
      EXPECT_EQ(remote.size(), 2U);
      EXPECT_FALSE(remote.contains(world.rank()));
      for (const auto& [rank, shards] : remote) {
        ASSERT_EQ(shards.size(), 1U);
        EXPECT_EQ(shards[0].owner(), rank);
        EXPECT_TRUE(shards[0].to_here().equal(numbers({5, 2}).narrow(0, 2 * rank, rank == 2 ? 1 : 2)));
      }
      EXPECT_THROW(tensor.reshard(chunks(1, {0, 1, 2})).remote_shards(), c10::Error);
      // A worker's name stands for its rank.
      const ShardedTensor named = zeros(ChunkShardingSpec(0, {"trainer2/cpu", "trainer0/cpu", "trainer1/cpu"}), {6});
      EXPECT_EQ(named.local_shards()[0].metadata.shard_offsets[0], ((world.rank() + 1) % 3) * 2);
      EXPECT_THROW(zeros(ChunkShardingSpec(0, {"nobody/cpu"}), {6}), c10::ValueError);
      barrier(world.group());
    }
    shutdown_rpc(world);
  });
}

}  // namespace
}  // namespace sherd::sharded
