// What was saved on any ranks in any layout is what any other ranks load in any other layout.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "property/random_state.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : folder_(fs::path(::testing::TempDir()) / ("checkpoint-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "ck") const { return (folder_ / name).string(); }

 private:
  fs::path folder_;
};

const std::vector<c10::ScalarType> kDtypes = {
    torch::kFloat,        torch::kDouble,        torch::kHalf,          torch::kBFloat16,   torch::kLong,
    torch::kInt,          torch::kShort,         torch::kChar,          torch::kByte,       torch::kBool,
    torch::kComplexFloat, torch::kComplexDouble, torch::kFloat8_e4m3fn, torch::kFloat8_e5m2};

std::vector<DrawnTensor> draw_tensors(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  std::vector<DrawnTensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    DrawnTensor tensor{{}, kDtypes[static_cast<size_t>(below(static_cast<int64_t>(kDtypes.size())))], below(1000)};
    for (int64_t d = below(4); d > 0; --d) tensor.size.push_back(below(9));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

StateDict make_state(const std::vector<DrawnTensor>& tensors, uint32_t seed, const World& world, bool filled) {
  StateMaker maker(seed, world);
  StateDict model;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor whole = tensors[i].whole();
    // ShardedTensors move data, which 8-bit floats refuse in some operators: those go as DTensors or plain.
    model["t" + std::to_string(i)] = maker.make(filled ? whole : torch::zeros_like(whole));
  }
  return {{"model", model}, {"step", filled ? 1000 : 0}, {"names", StateList{"a", "b"}}};
}

void expect_filled(const StateDict& state, const std::vector<DrawnTensor>& tensors, const std::string& where) {
  const StateDict& model = *state.at("model").dict();
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(holds(*model.at("t" + std::to_string(i)).tensor(), tensors[i].whole()))
        << where << ", tensor " << i << " of size " << to_string(tensors[i].size) << " and "
        << c10::toString(tensors[i].dtype);
  }
  EXPECT_EQ(*state.at("step").integer(), 1000) << where;
}

TEST_F(CheckpointTest, AnyMeshToAnyMesh) {
  const std::vector<int> sizes = {1, 2, 3, 4, 6};
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const auto tensors = draw_tensors(seed, 12);
    const int from = sizes[seed % sizes.size()];
    const int to = sizes[(seed / sizes.size()) % sizes.size()];
    const std::string where = fmt::format("seed {}, {} ranks to {}", seed, from, to);
    spawn(from, [&](World& world) { save(make_state(tensors, seed, world, true), path()); });
    spawn(to, [&](World& world) {
      StateDict state = make_state(tensors, seed + 1000, world, false);
      const LoadResult result = load(state, path());
      EXPECT_TRUE(result.missing.empty() && result.unexpected.empty()) << where;
      expect_filled(state, tensors, where);
    });
  }
}

// Kinds of tensors that the states above have among others: each of them from and to every other.
TEST_F(CheckpointTest, EveryKindOfTensorToEveryOther) {
  const auto whole = torch::arange(7 * 6 * 3).view({7, 6, 3});
  using Make = std::function<at::Tensor(StateMaker&, const at::Tensor&)>;
  const std::vector<std::pair<const char*, Make>> kinds = {
      {"plain", [](StateMaker&, const at::Tensor& x) { return x.clone(); }},
      {"DTensor",
       [](StateMaker& maker, const at::Tensor& x) {
         const DeviceMesh mesh = maker.mesh();
         return distribute_tensor(x, mesh, maker.placements(mesh, x.sizes().vec()), {.source = std::nullopt});
       }},
      {"ShardedTensor",
       [](StateMaker& maker, const at::Tensor& x) {
         const auto spec = maker.spec(x.sizes().vec());
         return at::Tensor(sharded::shard_tensor(x, spec));
       }},
      {"LocalShardsWrapper", [](StateMaker& maker, const at::Tensor& x) { return maker.local_shards(x); }},
      {"nested", [](StateMaker& maker, const at::Tensor& x) {
         const at::Tensor made = maker.nested(x);
         EXPECT_TRUE(sharded::is_sharded_tensor(made));
         EXPECT_TRUE(sharded::is_sharded_tensor(sharded::ShardedTensor(made).local_shards().at(0).tensor));
         return made;
       }}};
  for (uint32_t from = 0; from < kinds.size(); ++from) {
    spawn(from % 2 == 0 ? 4 : 6, [&](World& world) {
      StateMaker maker(from, world);
      save({{"x", kinds[from].second(maker, whole)}}, path());
    });
    EXPECT_TRUE(load_state_dict(path()).at("x").tensor()->equal(whole)) << kinds[from].first;
    for (uint32_t to = 0; to < kinds.size(); ++to) {
      spawn(to % 2 == 0 ? 6 : 4, [&](World& world) {
        StateMaker maker(100 + to, world);
        StateDict state{{"x", kinds[to].second(maker, torch::zeros_like(whole))}};
        load(state, path());
        EXPECT_TRUE(holds(*state.at("x").tensor(), whole)) << kinds[from].first << " to " << kinds[to].first;
      });
    }
  }
}

TEST_F(CheckpointTest, ADTensorOfLocalShards) {
  const auto whole = torch::arange(8 * 6.).view({8, 6});
  const auto make = [](const at::Tensor& x, const World& world) {
    const auto rows = x.narrow(0, 4 * world.rank(), 4);
    const LocalShardsWrapper mine({rows.narrow(1, 0, 2).clone(), rows.narrow(1, 2, 4).clone()},
                                  {{4 * world.rank(), 0}, {4 * world.rank(), 2}}, {.global_size = Dims{8, 6}});
    return from_local(mine, init_device_mesh("cpu", {2}), {Shard(0)}, {.shape = Dims{8, 6}});
  };
  spawn(2, [&](World& world) { save({{"x", make(whole, world)}}, path()); });
  spawn(3, [&](World& world) {
    StateMaker maker(1, world);
    StateDict state{{"x", distribute_tensor(torch::zeros({8, 6}), init_device_mesh("cpu", {3}), {Shard(1)})}};
    load(state, path());
    EXPECT_TRUE(holds(*state.at("x").tensor(), whole));
    save(state, path("columns"));
  });
  spawn(2, [&](World& world) {
    StateDict state{{"x", make(torch::zeros({8, 6}), world)}};
    load(state, path("columns"));
    EXPECT_TRUE(holds(*state.at("x").tensor(), whole));
  });
}

// The same keys and sizes again, something else about them: plans that were kept are not taken for it.
TEST_F(CheckpointTest, PlansAreKeptByAllThatTheyDependOn) {
  spawn(4, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {4});
    for (int round = 0; round < 2; ++round) {
      for (const auto dtype : {torch::kFloat, torch::kLong, torch::kHalf, torch::kByte, torch::kDouble}) {
        for (const auto& placement : {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
          const auto whole = (torch::arange(48).view({8, 6}) + round).to(dtype);
          save({{"x", distribute_tensor(whole, mesh, {placement})}, {"plain", whole}}, path());
          const StateDict loaded = load_state_dict(path());
          for (const char* key : {"x", "plain"}) {
            EXPECT_EQ(loaded.at(key).tensor()->scalar_type(), dtype);
            EXPECT_TRUE(loaded.at(key).tensor()->equal(whole)) << key << " " << c10::toString(dtype);
          }
          barrier(current_world().group());
        }
      }
    }
  });
}

TEST_F(CheckpointTest, AnyMeshToNone) {
  const auto tensors = draw_tensors(77, 20);
  spawn(4, [&](World& world) { save(make_state(tensors, 5, world, true), path()); });
  const StateDict state = load_state_dict(path());
  expect_filled(state, tensors, "load_state_dict");
  const StateDict some = load_state_dict(path(), {"model.t3", "step"});
  EXPECT_EQ(some.size(), 2U);
  EXPECT_EQ(some.at("model").dict()->size(), 1U);
}

TEST_F(CheckpointTest, InTheBackgroundWithWhatWasThereThen) {
  const auto tensors = draw_tensors(3, 12);
  spawn(3, [&](World& world) {
    StateDict state = make_state(tensors, 9, world, true);
    SaveFuture future = save_async(state, path());
    for (auto& [key, value] : *state.at("model").dict()) value.tensor()->zero_();
    const SaveResult result = future.wait();
    EXPECT_TRUE(future.ready());
    EXPECT_GT(result.bytes, 0);
    StateDict other = make_state(tensors, 10, world, false);
    load(other, path());
    expect_filled(other, tensors, "async");
  });
}

TEST_F(CheckpointTest, OnABaseOnlyWhatChanged) {
  const auto large = [](double value) { return torch::full({1 << 20}, value, torch::kFloat); };
  spawn(2, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto a = distribute_tensor(large(1), mesh, {Shard(0)});
    const auto b = distribute_tensor(torch::randn({1 << 20}), mesh, {Shard(0)});
    const StateDict state{{"a", a}, {"b", b}};
    const SaveResult first = save(state, path("one"));
    a.mul_(2);
    const SaveResult second = save(state, path("two"), {.base = path("one")});
    EXPECT_LT(second.bytes, first.bytes * 3 / 4);
    EXPECT_GT(second.bytes_in_base, 0);
    const SaveResult third = save(state, path("three"), {.base = path("two")});
    EXPECT_LT(third.bytes, first.bytes / 10);
    StateDict loaded{{"a", torch::zeros({1 << 20})}, {"b", torch::zeros({1 << 20})}};
    load(loaded, path("three"));
    EXPECT_TRUE(loaded.at("a").tensor()->equal(large(2)));
    EXPECT_TRUE(loaded.at("b").tensor()->equal(full_tensor(b)));
    // Without a base it stands alone again.
    save(loaded, path("four"));
    barrier(current_world().group());
    if (current_world().rank() == 0) {
      for (const char* name : {"one", "two", "three"}) fs::remove_all(path(name));
    }
    barrier(current_world().group());
    StateDict again{{"a", torch::zeros({1 << 20})}, {"b", torch::zeros({1 << 20})}};
    load(again, path("four"));
    EXPECT_TRUE(again.at("a").tensor()->equal(large(2)));
  });
}

TEST_F(CheckpointTest, RanksWithKeysOfTheirOwn) {
  spawn(4, [&](World& world) {
    const int64_t stage = world.rank() / 2;
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"stage", "tp"})["tp"];
    const auto value = torch::arange(10.) + static_cast<double>(stage);
    StateDict state{
        {"stage" + std::to_string(stage), distribute_tensor(value, mesh, {Shard(0)}, {.source = std::nullopt})},
        {"rank" + std::to_string(world.rank()), world.rank()},
        {"shared", torch::arange(3)}};
    save(state, path());
    const StateDict all = load_state_dict(path());
    EXPECT_EQ(all.size(), 7U);
    EXPECT_TRUE(all.at("stage1").tensor()->equal(torch::arange(10.) + 1));
    EXPECT_EQ(*all.at("rank3").integer(), 3);
  });
}

TEST_F(CheckpointTest, EveryDtypeFromEveryOther) {
  const auto whole = torch::arange(40).remainder(7).view({5, 8});
  for (const auto from : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kInt, torch::kByte}) {
    spawn(2, [&](World&) {
      const auto mesh = init_device_mesh("cpu", {2});
      save({{"x", distribute_tensor(whole.to(from), mesh, {Shard(0)}, {.source = std::nullopt})}}, path());
      for (const auto to : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kLong}) {
        StateDict state{{"x", distribute_tensor(torch::zeros({5, 8}, to), mesh, {Shard(1)}, {.source = std::nullopt})}};
        load(state, path());
        EXPECT_TRUE(holds(*state.at("x").tensor(), whole.to(to))) << c10::toString(from) << " to " << c10::toString(to);
      }
    });
  }
}

// As if they were read one after the other. Blocks of both are read by several threads.
TEST_F(CheckpointTest, OfTensorsThatAreOneInTheStateTheLastCounts) {
  constexpr int64_t kElements = int64_t{2} << 20;
  save({{"first", torch::ones({kElements})}, {"last", torch::full({kElements}, 2.)}}, path());
  for (const bool straight : {true, false}) {  // elements as they are in the file, or converted
    const auto w = torch::zeros({kElements}, straight ? torch::kFloat : torch::kDouble);
    StateDict state{{"first", w}, {"last", w}};
    load(state, path());
    EXPECT_TRUE(w.eq(2).all().item<bool>()) << straight;
    StateDict other{{"last", w}, {"first", w.view({kElements})}};
    load(other, path());
    EXPECT_TRUE(w.eq(1).all().item<bool>()) << straight;
  }
}

TEST_F(CheckpointTest, ViewsOnEitherSide) {
  const auto whole = torch::arange(3 * 5 * 7 * 2, torch::kFloat).view({3, 5, 7, 2});
  save({{"x", whole.permute({2, 0, 3, 1})}}, path());
  auto memory = torch::zeros({2, 14, 6, 5});
  StateDict state{{"x", memory.narrow(1, 3, 7).narrow(2, 2, 3).permute({1, 2, 0, 3})}};
  load(state, path());
  EXPECT_TRUE(state.at("x").tensor()->equal(whole.permute({2, 0, 3, 1})));
  EXPECT_EQ(memory.sum().item<double>(), whole.sum().item<double>());  // nothing beside it was written
}

TEST_F(CheckpointTest, ValuesKeepTheirKinds) {
  const StateDict state{{"none", StateValue()},
                        {"yes", true},
                        {"number", int64_t{1} << 40},
                        {"real", 0.5},
                        {"text", "größe"},
                        {"bytes", StateBytes{std::string("a\0b", 3)}},
                        {"list", StateList{1, "two", 3.0}},
                        {"tuple", StateTuple{{1, StateTuple{{2}}, torch::arange(3)}}},
                        {"empty", StateDict()},
                        {"numbered", StateDict{{5, "five"}, {7, StateDict{{-1, 0}}}}},
                        {"scalar", torch::tensor(2.5)}};
  save(state, path());
  StateDict loaded{{"none", 1},
                   {"yes", false},
                   {"number", 0},
                   {"real", 0.0},
                   {"text", ""},
                   {"bytes", StateBytes{}},
                   {"list", StateValue()},
                   {"tuple", StateValue()},
                   {"empty", StateDict()},
                   {"numbered", StateDict{{5, ""}, {7, StateDict{{-1, 1}}}}},
                   {"scalar", torch::tensor(0.0)}};
  load(loaded, path());
  EXPECT_TRUE(loaded.at("none").is_none());
  EXPECT_TRUE(*loaded.at("yes").boolean());
  EXPECT_EQ(*loaded.at("number").integer(), int64_t{1} << 40);
  EXPECT_EQ(*loaded.at("real").number(), 0.5);
  EXPECT_EQ(*loaded.at("text").text(), "größe");
  EXPECT_EQ(std::get<StateBytes>(loaded.at("bytes").content()).data, std::string("a\0b", 3));
  EXPECT_EQ(loaded.at("list").list()->size(), 3U);
  const StateTuple* tuple = loaded.at("tuple").tuple();
  ASSERT_NE(tuple, nullptr);
  EXPECT_EQ(*tuple->items[1].tuple()->items[0].integer(), 2);
  EXPECT_TRUE(tuple->items[2].tensor()->equal(torch::arange(3)));
  EXPECT_EQ(*loaded.at("numbered").dict()->at(5).text(), "five");
  EXPECT_EQ(*loaded.at("numbered").dict()->at(7).dict()->at(-1).integer(), 0);
  EXPECT_EQ(loaded.at("scalar").tensor()->item<double>(), 2.5);
}

TEST_F(CheckpointTest, InMemory) {
  const auto storage = memory_storage();
  const auto tensors = draw_tensors(11, 12);
  spawn(4, [&](World& world) { save(make_state(tensors, 1, world, true), "ck", {.storage = storage}); });
  spawn(3, [&](World& world) {
    StateDict state = make_state(tensors, 2, world, false);
    load(state, "ck", {.storage = storage});
    expect_filled(state, tensors, "memory");
  });
}

// Blocks that several ranks want are read by one of them: together they read little more than there is.
TEST_F(CheckpointTest, WhatSeveralRanksOfAHostWantIsReadOnce) {
  constexpr int64_t kSide = 2048;
  constexpr int kTensors = 3;
  const auto whole = [](int number) { return torch::arange(kSide * kSide).view({kSide, kSide}) + number; };
  const auto make = [&](const DeviceMesh& mesh, const std::vector<Placement>& placements, bool filled) {
    StateDict state;
    for (int i = 0; i < kTensors; ++i) {
      const at::Tensor tensor = (filled ? whole(i) : torch::zeros({kSide, kSide})).to(torch::kFloat);
      state["t" + std::to_string(i)] = distribute_tensor(tensor, mesh, placements, {.source = std::nullopt});
      state["small" + std::to_string(i)] = torch::full({10}, filled ? i : -1);
    }
    return state;
  };
  spawn(4, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2, 2});
    save(make(mesh, {Shard(0), Shard(0)}, true), path());
    const std::vector<std::vector<Placement>> layouts = {{Shard(1), Shard(1)},
                                                         {Replicate(), Replicate()},
                                                         {Shard(0), Shard(1)},
                                                         {Replicate(), Shard(0)},
                                                         {Shard(0), Shard(0)}};
    for (const auto& placements : layouts) {
      StateDict loaded = make(mesh, placements, false);
      const LoadResult result = load(loaded, path());
      const at::Tensor read = torch::tensor({result.bytes});
      all_reduce(world.group(), read).wait();
      EXPECT_LT(read.item<int64_t>(), kTensors * kSide * kSide * 4 * 5 / 4) << to_string(placements[0]);
      for (int i = 0; i < kTensors; ++i) {
        const at::Tensor tensor = full_tensor(*loaded.at("t" + std::to_string(i)).tensor());
        EXPECT_TRUE(tensor.equal(whole(i).to(torch::kFloat))) << i;
        EXPECT_EQ(loaded.at("small" + std::to_string(i)).tensor()->sum().item<int64_t>(), 10 * i);
      }
    }
  });
}

TEST_F(CheckpointTest, BetweenAGpuAndTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const auto whole = torch::arange(60.).view({10, 6});
  spawn(2, [&](World&) {
    const auto on_gpu = [&](const at::Tensor& tensor, const Placement& placement) {
      return distribute_tensor(tensor.cuda(), init_device_mesh("cuda", {2}), {placement}, {.source = std::nullopt});
    };
    const auto x = on_gpu(whole, Shard(0));
    const auto view = whole.cuda().t();
    save({{"x", x}, {"view", view}}, path("now"));
    SaveFuture future = save_async({{"x", x}, {"view", view}}, path("later"));
    x.zero_();
    future.wait();
    for (const char* name : {"now", "later"}) {
      StateDict gpu{{"x", on_gpu(torch::zeros({10, 6}), Shard(1))}, {"view", torch::zeros({6, 10}).cuda()}};
      load(gpu, path(name));
      EXPECT_TRUE(full_tensor(*gpu.at("x").tensor()).cpu().equal(whole)) << name;
      EXPECT_TRUE(gpu.at("view").tensor()->cpu().equal(whole.t())) << name;
      StateDict cpu{{"x", torch::zeros({10, 6}, torch::kDouble)}, {"view", torch::zeros({6, 10}, torch::kHalf)}};
      load(cpu, path(name));
      EXPECT_TRUE(cpu.at("x").tensor()->equal(whole.to(torch::kDouble))) << name;
    }
  });
}

TEST_F(CheckpointTest, EachElementIsWrittenOnceAndTheWorkIsShared) {
  spawn(4, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2, 2});
    StateDict state;
    for (int i = 0; i < 8; ++i) {
      state["replicated" + std::to_string(i)] =
          distribute_tensor(torch::ones({1 << 14}), mesh, {Replicate(), Replicate()});
      state["plain" + std::to_string(i)] = torch::ones({1 << 14});
    }
    const SaveResult result = save(state, path());
    const int64_t data = 16 * (1 << 16);
    EXPECT_GE(result.bytes, data);
    EXPECT_LT(result.bytes, data * 11 / 10);
    EXPECT_LT(result.bytes_of_rank, data / 4 * 11 / 10) << world.rank();
  });
}

}  // namespace
}  // namespace sherd::testing
