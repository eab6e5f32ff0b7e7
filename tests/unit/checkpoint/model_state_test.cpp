// The states of modules: names, whole tensors, and the way back into whatever the module has become.

#include "sherd/model_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd {
namespace {

using at::Tensor;
using ::testing::ElementsAre;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    fc = register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(4, 6).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    scale = register_parameter("scale", torch::ones({6}));
    offset = register_buffer("offset", torch::zeros({6}));
    frozen = register_parameter("frozen", torch::ones({3}), false);
  }
  Tensor forward(const Tensor& x) { return norm(fc(x)) * scale + offset; }

  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Tensor scale, offset, frozen;
};
TORCH_MODULE(Block);

std::vector<std::string> keys_of(const StateDict& state) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : state) keys.push_back(std::get<std::string>(key));
  return keys;
}

Tensor numbers(at::IntArrayRef shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kFloat).view(shape);
}

StateDict numbered_state(const torch::nn::Module& module) {
  StateDict state;
  int64_t i = 0;
  for (const auto& [key, value] : get_model_state_dict(module)) {
    state[key] = (numbers(value.tensor()->sizes()) + 100 * ++i).to(value.tensor()->scalar_type());
  }
  return state;
}

Placements rows(const std::string&, const Tensor& tensor) {
  return {tensor.dim() > 0 ? Placement(Shard(0)) : Placement(Replicate())};
}

Tensor whole(const Tensor& tensor) {
  if (is_dtensor(tensor)) return full_tensor(tensor.detach());
  if (!sharded::is_sharded_tensor(tensor)) return tensor.detach();
  return full_tensor(sharded::to_dtensor(sharded::ShardedTensor(tensor.detach())));
}

void expect_has(const torch::nn::Module& module, const StateDict& state) {
  for (const auto& [key, value] : get_model_state_dict(module)) {
    EXPECT_TRUE(whole(*value.tensor()).equal(*state.at(key).tensor())) << std::get<std::string>(key);
  }
}

template <class Error, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(ModelStateTest, NamesAreThoseOfPython) {
  const Block block;
  const StateDict state = get_model_state_dict(*block);
  EXPECT_THAT(keys_of(state), ElementsAre("scale", "frozen", "offset", "fc.weight", "norm.weight", "norm.bias",
                                          "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_EQ(state.at("fc.weight").tensor()->data_ptr(), block->fc->weight.data_ptr());
  EXPECT_FALSE(state.at("fc.weight").tensor()->requires_grad());
  EXPECT_FALSE(get_model_state_dict(*block, {.ignore_frozen_params = true}).contains("frozen"));
}

TEST(ModelStateTest, ASharedParameterHasAllItsNames) {
  torch::nn::Linear one(2, 2);
  const torch::nn::Sequential twice(one, torch::nn::Tanh(), one);
  EXPECT_THAT(keys_of(get_model_state_dict(*twice)), ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
}

TEST(ModelStateTest, SetFillsTheModule) {
  Block block;
  const StateDict state = numbered_state(*block);
  EXPECT_EQ(set_model_state_dict(*block, state), IncompatibleKeys());
  expect_has(*block, state);
  EXPECT_TRUE(block->fc->weight.requires_grad() && block->fc->weight.is_leaf());
}

TEST(ModelStateTest, SetConvertsDtypes) {
  torch::nn::Linear fc(2, 3);
  fc->to(torch::kBFloat16);
  set_model_state_dict(*fc, {{"weight", numbers({3, 2}).to(torch::kDouble)}, {"bias", numbers({3})}});
  EXPECT_TRUE(fc->weight.detach().equal(numbers({3, 2}).to(torch::kBFloat16)));
}

TEST(ModelStateTest, OtherKeysAreAnErrorUnlessNotStrict) {
  torch::nn::Linear fc(2, 3);
  const Tensor before = fc->weight.detach().clone();
  const StateDict state{{"weight", numbers({3, 2})}, {"more", 1}};
  EXPECT_EQ(error_of<c10::Error>([&] { set_model_state_dict(*fc, state); }),
            "set_model_state_dict: the state has other keys than the module\n"
            "  missing: bias\n"
            "  unexpected: more\n"
            "  help: {.strict = false} to take what is there");
  EXPECT_TRUE(fc->weight.detach().equal(before));
  const IncompatibleKeys keys = set_model_state_dict(*fc, state, {.strict = false});
  EXPECT_EQ(keys, (IncompatibleKeys{{"bias"}, {"more"}}));
  EXPECT_TRUE(fc->weight.detach().equal(numbers({3, 2})));
}

TEST(ModelStateTest, FrozenParametersMayBeLeftOut) {
  Block block;
  StateDict state = numbered_state(*block);
  state.erase("frozen");
  EXPECT_EQ(set_model_state_dict(*block, state, {.ignore_frozen_params = true}), IncompatibleKeys());
}

TEST(ModelStateTest, OtherSizesAndKindsAreAnError) {
  torch::nn::Linear fc(2, 3);
  const auto text = [](const std::string& kind) {
    return "set_model_state_dict: a value does not fit the module's tensor\n"
           "  name: weight\n  module: tensor f32[3, 2]\n  state: " +
           kind + "\n  help: a state of the same module";
  };
  const auto set = [&](const StateValue& value) {
    return error_of<c10::ValueError>([&] { set_model_state_dict(*fc, {{"weight", value}, {"bias", numbers({3})}}); });
  };
  EXPECT_EQ(set(numbers({2, 3})), text("tensor f32[2, 3]"));
  EXPECT_EQ(set(7), text("integer"));
}

struct MetaImpl : torch::nn::Module {
  MetaImpl() { weight = register_parameter("weight", torch::empty({3, 2}, torch::kMeta)); }
  Tensor weight;
};

TEST(ModelStateTest, ParametersOnTheMetaDeviceGetMemory) {
  MetaImpl module;
  EXPECT_TRUE(module.weight.is_meta());
  set_model_state_dict(module, {{"weight", numbers({3, 2})}});
  EXPECT_TRUE(module.weight.detach().equal(numbers({3, 2})));
  EXPECT_TRUE(module.weight.requires_grad() && module.weight.is_leaf());
  module.weight.square().sum().backward();
  EXPECT_TRUE(module.weight.grad().equal(2 * numbers({3, 2})));
}

TEST(ModelStateTest, DistributedModulesGiveTheirPartsOrAll) {
  spawn(3, [](World& world) {
    Block block;
    const StateDict state = numbered_state(*block);
    distribute_module(*block, init_device_mesh("cpu", {3}, {"dp"}), rows);
    set_model_state_dict(*block, state);
    const StateDict parts = get_model_state_dict(*block);
    EXPECT_TRUE(is_dtensor(*parts.at("fc.weight").tensor()));
    EXPECT_EQ(to_local(*parts.at("fc.weight").tensor()).data_ptr(), to_local(block->fc->weight).data_ptr());
    expect_has(*block, state);

    const StateDict full = get_model_state_dict(*block, {.full_state_dict = true});
    for (const auto& [key, value] : full) {
      EXPECT_FALSE(is_dtensor(*value.tensor()));
      EXPECT_TRUE(value.tensor()->equal(*state.at(key).tensor()));
    }
    EXPECT_EQ(full.size(), state.size());

    const StateDict first = get_model_state_dict(*block, {.full_state_dict = true, .cpu_offload = true});
    EXPECT_EQ(first.size(), world.rank() == 0 ? state.size() : 0U);
    for (const auto& [key, value] : first) EXPECT_TRUE(value.tensor()->equal(*state.at(key).tensor()));

    // Without full tensors every rank keeps its parts.
    const StateDict offloaded = get_model_state_dict(*block, {.cpu_offload = true});
    EXPECT_EQ(keys_of(offloaded), keys_of(state));
    for (const auto& [key, value] : offloaded) {
      const Tensor& part = *parts.at(key).tensor();
      ASSERT_EQ(is_dtensor(*value.tensor()), is_dtensor(part));
      EXPECT_TRUE(value.tensor()->device().is_cpu());
      if (is_dtensor(part)) {
        EXPECT_EQ(placements_of(*value.tensor()), placements_of(part));
      }
      EXPECT_TRUE(whole(*value.tensor()).equal(*state.at(key).tensor())) << std::get<std::string>(key);
    }
  });
}

TEST(ModelStateTest, AModuleOfShardedTensorsToo) {
  spawn(2, [](World& world) {
    torch::nn::Linear fc(4, 6);
    const StateDict state = numbered_state(*fc);
    sharded::shard_parameter(*fc, "weight", sharded::ChunkShardingSpec(1, {"rank:0/cpu", "rank:1/cpu"}));
    set_model_state_dict(*fc, state);
    expect_has(*fc, state);
    const StateDict full = get_model_state_dict(*fc, {.full_state_dict = true});
    EXPECT_TRUE(full.at("weight").tensor()->equal(*state.at("weight").tensor()));
    const StateDict first = get_model_state_dict(*fc, {.full_state_dict = true, .cpu_offload = true});
    EXPECT_EQ(first.size(), world.rank() == 0 ? 2U : 0U);
    if (world.rank() == 0) {
      EXPECT_TRUE(first.at("weight").tensor()->equal(*state.at("weight").tensor()));
    }
    const StateDict offloaded = get_model_state_dict(*fc, {.cpu_offload = true});
    ASSERT_TRUE(sharded::is_sharded_tensor(*offloaded.at("weight").tensor()));
    EXPECT_EQ(sharded::ShardedTensor(*offloaded.at("weight").tensor()).metadata().shards_metadata,
              sharded::ShardedTensor(fc->weight).metadata().shards_metadata);
    EXPECT_TRUE(whole(*offloaded.at("weight").tensor()).equal(*state.at("weight").tensor()));
    EXPECT_TRUE(offloaded.at("bias").tensor()->equal(*state.at("bias").tensor()));
  });
}

TEST(ModelStateTest, AMeshWithoutRankZeroSendsItsTensorsThere) {
  spawn(3, [](World& world) {
    torch::nn::Linear fc(4, 6);
    const StateDict state = numbered_state(*fc);
    const DeviceMesh mesh("cpu", Mesh({{"dp", 2}}, {1, 2}));
    distribute_module(*fc, mesh, rows);
    set_model_state_dict(*fc, state, {.full_state_dict = true});
    const StateDict first = get_model_state_dict(*fc, {.full_state_dict = true, .cpu_offload = true});
    EXPECT_EQ(first.size(), world.rank() == 0 ? 2U : 0U);
    for (const auto& [key, value] : first) EXPECT_TRUE(value.tensor()->equal(*state.at(key).tensor()));
    torch::nn::Linear other(4, 6);
    distribute_module(*other, mesh, rows);
    set_model_state_dict(*other, first, {.full_state_dict = true, .broadcast_from_rank0 = true});
    if (world.rank() > 0) expect_has(*other, state);
  });
}

TEST(ModelStateTest, StatesGoFromOnePlacementToAnother) {
  spawn(4, [](World&) {
    Block block;
    Block other;
    const StateDict state = numbered_state(*block);
    distribute_module(*block, init_device_mesh("cpu", {4}, {"dp"}), rows);
    distribute_module(*other, init_device_mesh("cpu", {4}, {"dp"}), [](const std::string&, const Tensor& tensor) {
      return Placements{tensor.dim() > 1 ? Placement(Shard(1)) : Placement(Replicate())};
    });
    set_model_state_dict(*block, state);
    set_model_state_dict(*other, get_model_state_dict(*block));
    expect_has(*other, state);
    Block plain;
    set_model_state_dict(*plain, get_model_state_dict(*other));
    expect_has(*plain, state);
  });
}

TEST(ModelStateTest, RankZeroSharesOutWhatItHas) {
  spawn(4, [](World& world) {
    Block block;
    const StateDict state = numbered_state(*block);
    const StateDictOptions options{.full_state_dict = true, .broadcast_from_rank0 = true};
    const StateDict mine = world.rank() == 0 ? state : StateDict();
    set_model_state_dict(*block, mine, options);
    expect_has(*block, state);

    Block cut;
    distribute_module(*cut, init_device_mesh("cpu", {2, 2}, {"dp", "tp"}),
                      [](const std::string&, const Tensor& tensor) {
                        return Placements{Replicate(), tensor.dim() > 0 ? Placement(Shard(0)) : Placement(Replicate())};
                      });
    set_model_state_dict(*cut, mine, options);
    expect_has(*cut, state);

    Block pieces;
    sharded::shard_parameter(*pieces, "fc.weight",
                             sharded::ChunkShardingSpec(0, {"rank:3/cpu", "rank:1/cpu", "rank:0/cpu", "rank:2/cpu"}));
    set_model_state_dict(*pieces, mine, options);
    expect_has(*pieces, state);
  });
}

// Conjugates and negatives that are still to be computed have the memory of another tensor.
TEST(ModelStateTest, RankZeroSharesOutConjugates) {
  spawn(2, [](World& world) {
    torch::nn::Module module;
    const Tensor one = module.register_buffer("one", torch::zeros({1}, torch::kComplexFloat));
    const Tensor many = module.register_buffer("many", torch::zeros({3}, torch::kComplexFloat));
    const Tensor real = module.register_buffer("real", torch::zeros({3}));
    const Tensor x = torch::complex(numbers({3}), numbers({3}) + 1);
    const StateDict state{{"one", x.narrow(0, 2, 1).conj()}, {"many", x.conj()}, {"real", torch::imag(x.conj())}};
    ASSERT_TRUE(state.at("real").tensor()->is_neg());
    set_model_state_dict(module, world.rank() == 0 ? state : StateDict(),
                         {.full_state_dict = true, .broadcast_from_rank0 = true});
    EXPECT_TRUE(one.equal(torch::complex(numbers({3}), -numbers({3}) - 1).narrow(0, 2, 1)));
    EXPECT_TRUE(many.equal(torch::complex(numbers({3}), -numbers({3}) - 1)));
    EXPECT_TRUE(real.equal(-numbers({3}) - 1));
    // Its own memory, read in another way.
    const Tensor before = many.clone();
    set_model_state_dict(module, {{"one", one}, {"many", many.conj()}, {"real", real._neg_view()}});
    EXPECT_TRUE(many.equal(before.conj()));
    EXPECT_TRUE(real.equal(numbers({3}) + 1));
  });
}

TEST(ModelStateTest, EachRowOfAMeshHasItsOwnTensors) {
  // The rows of a mesh: two tensors of two ranks each, which know nothing of one another.
  spawn(4, [](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2, 2}, {"dp", "tp"})["tp"];
    torch::nn::Linear fc(4, 6);
    const StateDict state = numbered_state(*fc);
    distribute_module(*fc, tp, rows);
    const StateDict mine = world.rank() == 0 ? state : StateDict();
    set_model_state_dict(*fc, mine, {.full_state_dict = true, .broadcast_from_rank0 = true});
    expect_has(*fc, state);
    const StateDict first = get_model_state_dict(*fc, {.full_state_dict = true, .cpu_offload = true});
    EXPECT_EQ(first.size(), world.rank() == 0 ? 2U : 0U);
    for (const auto& [key, value] : first) EXPECT_TRUE(value.tensor()->equal(*state.at(key).tensor()));
  });
}

TEST(ModelStateTest, StagesOfAPipelineTakeTheirOwn) {
  spawn(2, [](World& world) {
    const StateDict state{{"weight", numbers({3, 2})}, {"bias", numbers({3})}};
    torch::nn::Linear fc(torch::nn::LinearOptions(2, 3).bias(world.rank() == 1));
    const StateDict mine = world.rank() == 0 ? state : StateDict();
    const IncompatibleKeys keys =
        set_model_state_dict(*fc, mine, {.full_state_dict = true, .strict = false, .broadcast_from_rank0 = true});
    EXPECT_EQ(keys.unexpected, world.rank() == 0 ? std::vector<std::string>{"bias"} : std::vector<std::string>());
    EXPECT_TRUE(fc->weight.detach().equal(numbers({3, 2})));
    if (world.rank() == 1) {
      EXPECT_TRUE(fc->bias.detach().equal(numbers({3})));
    }
  });
}

TEST(ModelStateTest, WhatIsWrongOnRankZeroIsAnErrorOnAll) {
  spawn(2, [](World& world) {
    torch::nn::Linear fc(2, 3);
    const StateDictOptions options{.full_state_dict = true, .broadcast_from_rank0 = true};
    const StateDict mine =
        world.rank() == 0 ? StateDict{{"weight", numbers({2, 2})}, {"bias", numbers({3})}} : StateDict();
    const std::string error = error_of<c10::ValueError>([&] { set_model_state_dict(*fc, mine, options); });
    EXPECT_NE(error.find("2 of 2 ranks failed"), std::string::npos) << error;
    EXPECT_NE(error.find("state: tensor f32[2, 2]"), std::string::npos) << error;
    const StateDict parts{{"weight", zeros({3, 2}, init_device_mesh("cpu", {2}), {Shard(0)})}};
    const std::string not_whole = error_of<c10::ValueError>([&] { set_model_state_dict(*fc, parts, options); });
    EXPECT_NE(not_whole.find("set_model_state_dict: a tensor is not whole\n      value: [\"weight\"]"),
              std::string::npos)
        << not_whole;
  });
}

TEST(ModelStateTest, OnlyWholeTensorsAreSharedOut) {
  torch::nn::Linear fc(2, 3);
  EXPECT_EQ(error_of<c10::ValueError>([&] { set_model_state_dict(*fc, {}, {.broadcast_from_rank0 = true}); }),
            "set_model_state_dict: rank 0 can only share out whole tensors\n"
            "  broadcast_from_rank0: true\n"
            "  full_state_dict: false\n"
            "  help: {.full_state_dict = true, .broadcast_from_rank0 = true}");
}

TEST(GeneratorStateTest, NumbersGoOn) {
  Generator ours(7);
  at::Generator torchs = at::detail::createCPUGenerator(7);
  for (const at::Generator& generator : {static_cast<at::Generator>(ours), torchs}) {
    const Tensor state = get_generator_state(generator);
    EXPECT_EQ(state.scalar_type(), torch::kByte);
    at::Generator same = generator;
    const uint64_t number = same.current_seed();
    set_generator_state(generator, state);
    EXPECT_TRUE(get_generator_state(generator).equal(state));
    EXPECT_EQ(same.current_seed(), number);
  }
  const Tensor before = get_generator_state(torchs);
  const Tensor drawn = torch::rand({4}, torchs);
  EXPECT_FALSE(get_generator_state(torchs).equal(before));
  set_generator_state(torchs, before);
  EXPECT_TRUE(torch::rand({4}, torchs).equal(drawn));
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    Generator generator(5);
    (void)rand({4}, mesh, {Shard(0)}, {}, generator);
    const Tensor state = get_generator_state(generator);
    const Tensor next = full_tensor(rand({4}, mesh, {Shard(0)}, {}, generator));
    Generator other(1);
    set_generator_state(other, state);
    EXPECT_TRUE(full_tensor(rand({4}, mesh, {Shard(0)}, {}, other)).equal(next));
  });
}

}  // namespace
}  // namespace sherd
