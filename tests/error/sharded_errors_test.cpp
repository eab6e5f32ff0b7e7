// What sharded tensors say when they are asked for what cannot be: class and whole text, on every rank.
// The texts stand in golden/sharded_errors.txt.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <mutex>
#include <sstream>

#include "sherd/sherd.h"

namespace sherd::sharded {
namespace {

using at::Tensor;

ShardingSpec chunks(int64_t dim, const std::vector<int64_t>& ranks) {
  std::vector<RemoteDevice> placements;
  for (const int64_t rank : ranks) placements.emplace_back(rank, c10::Device(c10::kCPU));
  return ChunkShardingSpec(dim, std::move(placements));
}

Tensor numbers(at::IntArrayRef shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kFloat).view(shape);
}

// A shard of rows of a 4 x 2 tensor, two per rank.
Shard rows_of(const World& world, c10::ScalarType dtype = c10::kFloat) {
  return Shard::from_tensor_and_offsets(numbers({2, 2}).to(dtype), {2 * world.rank(), 0}, world.rank());
}

ShardedTensorMetadata metadata_of_rows() {
  return chunks(0, {0, 1}).build_metadata({4, 2}, TensorProperties(c10::kFloat));
}

struct Case {
  const char* name;
  std::function<void(World&)> run;
};

const Case kCases[] = {
    {"device: two slashes", [](World&) { RemoteDevice("rank:0/cpu/1"); }},
    {"device: no rank", [](World&) { RemoteDevice("rank:x/cpu"); }},
    {"device: no name", [](World&) { RemoteDevice("/cpu"); }},
    {"device: none", [](World&) { RemoteDevice("worker1/gpu9"); }},
    {"device: a colon in a name", [](World&) { RemoteDevice("a:b/cpu"); }},
    {"device: empty", [](World&) { RemoteDevice(""); }},
    {"metadata: lengths",
     [](World&) {
       ShardMetadata({0}, {1, 2});
     }},
    {"metadata: negative offset", [](World&) { ShardMetadata({-1}, {1}); }},
    {"metadata: negative size", [](World&) { ShardMetadata({0}, {-1}); }},
    {"shard: size",
     [](World&) {
       Shard(numbers({2, 2}), {{0, 0}, {2, 3}});
     }},
    {"shard: device",
     [](World&) {
       Shard(numbers({2, 2}), {{0, 0}, {2, 2}, "rank:0/meta"});
     }},
    {"chunk: dim",
     [](World&) {
       zeros(chunks(2, {0, 1}), {4, 2});
     }},
    {"chunk: scalar",
     [](World&) {
       zeros(chunks(0, {0, 1}), {});
     }},
    {"chunk: no placements", [](World&) { ChunkShardingSpec(0, {}); }},
    {"chunk: rank without a chunk",
     [](World&) {
       get_chunk_sharding_params(4, 2, ChunkShardingSpec(0, {"rank:0/cpu", "rank:1/cpu"}), 5);
     }},
    {"enumerable: nothing", [](World&) { EnumerableShardingSpec({}); }},
    {"enumerable: ndim",
     [](World&) {
       EnumerableShardingSpec({{{0}, {1}}, {{0, 0}, {1, 1}}});
     }},
    {"enumerable: overlap",
     [](World&) {
       EnumerableShardingSpec({{{0, 0}, {2, 2}}, {{1, 1}, {2, 2}}});
     }},
    {"enumerable: hole",
     [](World&) {
       zeros(EnumerableShardingSpec({{{0, 0}, {2, 2}, "rank:0/cpu"}}), {4, 2});
     }},
    {"enumerable: outside",
     [](World&) {
       zeros(EnumerableShardingSpec({{{0, 0}, {5, 2}, "rank:0/cpu"}}), {4, 2});
     }},
    {"enumerable: ndim of the tensor",
     [](World&) {
       zeros(EnumerableShardingSpec({{{0}, {4}, "rank:0/cpu"}}), {4, 2});
     }},
    {"enumerable: no placement",
     [](World&) {
       zeros(EnumerableShardingSpec({{{0}, {4}}}), {4});
     }},
    {"made: rank not in the group",
     [](World&) {
       zeros(chunks(0, {0, 7}), {4});
     }},
    {"made: no rank", [](World&) { zeros(ChunkShardingSpec(0, {"cpu"}), {4}); }},
    {"made: worker without RPC", [](World&) { zeros(ChunkShardingSpec(0, {"worker0/cpu"}), {4}); }},
    {"made: negative size",
     [](World&) {
       zeros(chunks(0, {0, 1}), {-4});
     }},
    {"made: layout",
     [](World&) {
       ShardedTensorOptions options;
       options.layout = c10::kSparse;
       zeros(chunks(0, {0, 1}), {4}, options);
     }},
    {"made: memory format",
     [](World&) {
       ShardedTensorOptions options;
       options.memory_format = c10::MemoryFormat::ChannelsLast;
       zeros(chunks(0, {0, 1}), {4}, options);
     }},
    {"made: group outside the world",
     [](World&) {
       ShardedTensorOptions options;
       options.ranks = std::vector<int64_t>{5};
       zeros(chunks(0, {5}), {4}, options);
     }},
    {"made: init_rrefs without RPC",
     [](World&) {
       ShardedTensorOptions options;
       options.init_rrefs = true;
       zeros(chunks(0, {0, 1}), {4}, options);
     }},
    {"metadata of all: no shards",
     [](World&) {
       ShardedTensor::init_from_local_shards_and_global_metadata({}, {{}, {4, 2}, {}});
     }},
    {"metadata of all: number of shards",
     [](World&) { ShardedTensor::init_from_local_shards_and_global_metadata({}, metadata_of_rows()); }},
    {"metadata of all: another rectangle",
     [](World& world) {
       const Shard other = Shard::from_tensor_and_offsets(numbers({2, 2}), {2 - 2 * world.rank(), 0}, world.rank());
       ShardedTensor::init_from_local_shards_and_global_metadata({other}, metadata_of_rows());
     }},
    {"metadata of all: dtype",
     [](World& world) {
       ShardedTensor::init_from_local_shards_and_global_metadata({rows_of(world, c10::kDouble)}, metadata_of_rows());
     }},
    {"metadata of all: requires_grad",
     [](World& world) {
       Shard shard = rows_of(world);
       shard.tensor.requires_grad_();
       ShardedTensor::init_from_local_shards_and_global_metadata({shard}, metadata_of_rows());
     }},
    {"metadata of all: contiguity",
     [](World& world) {
       const Shard shard = Shard::from_tensor_and_offsets(numbers({2, 2}).t(), {2 * world.rank(), 0}, world.rank());
       ShardedTensor::init_from_local_shards_and_global_metadata({shard}, metadata_of_rows());
     }},
    {"metadata of all: hole",
     [](World& world) {
       auto metadata = metadata_of_rows();
       metadata.size = {5, 2};
       ShardedTensor::init_from_local_shards_and_global_metadata({rows_of(world)}, metadata);
     }},
    {"metadata of all: another spec",
     [](World& world) {
       ShardedTensor::init_from_local_shards_and_global_metadata({rows_of(world)}, metadata_of_rows(), {},
                                                                 chunks(1, {0, 1}));
     }},
    {"metadata of all: no group",
     [](World& world) {
       const auto base =
           ShardedTensorBase::init_from_local_shards_and_global_metadata({rows_of(world)}, metadata_of_rows());
       ShardedTensor{base};
     }},
    {"from shards: nobody has one",
     [](World&) {
       init_from_local_shards({}, Dims{4, 2});
     }},
    {"from shards: one rank's is wrong",
     [](World& world) {
       Shard shard = rows_of(world);
       if (world.rank() == 1) shard.metadata.placement = "rank:0/cpu";
       init_from_local_shards({shard}, Dims{4, 2});
     }},
    {"from shards: one rank's ndim",
     [](World& world) {
       std::vector<Shard> shards{rows_of(world)};
       if (world.rank() == 0) shards.push_back(Shard::from_tensor_and_offsets(numbers({2}), {0}, 0));
       init_from_local_shards(shards, Dims{4, 2});
     }},
    {"from shards: two dtypes on one rank",
     [](World& world) {
       init_from_local_shards({rows_of(world), rows_of(world, c10::kDouble)}, Dims{4, 2});
     }},
    {"from shards: ranks differ in size",
     [](World& world) {
       init_from_local_shards({rows_of(world)}, Dims{4, 2 + world.rank()});
     }},
    {"from shards: ranks differ in dtype",
     [](World& world) {
       init_from_local_shards({rows_of(world, world.rank() == 0 ? c10::kFloat : c10::kDouble)}, Dims{4, 2});
     }},
    {"from shards: ranks differ in requires_grad",
     [](World& world) {
       Shard shard = rows_of(world);
       shard.tensor.requires_grad_(world.rank() == 1);
       init_from_local_shards({shard}, Dims{4, 2});
     }},
    {"from shards: overlap",
     [](World& world) {
       init_from_local_shards({Shard::from_tensor_and_offsets(numbers({2, 2}), {0, 0}, world.rank())}, Dims{4, 2});
     }},
    {"from shards: hole",
     [](World& world) {
       init_from_local_shards({rows_of(world)}, Dims{6, 2});
     }},
    {"from shards: two open dims",
     [](World& world) {
       init_from_local_shards({rows_of(world)}, std::vector<std::optional<int64_t>>{std::nullopt, std::nullopt});
     }},
    {"from a local tensor: contiguity",
     [](World&) {
       init_from_local_tensor(numbers({2, 2}).t(), chunks(0, {0, 1}), {4, 2});
     }},
    {"from a local tensor: size",
     [](World&) {
       init_from_local_tensor(numbers({3, 2}), chunks(0, {0, 1}), {4, 2});
     }},
    {"shard_tensor: contiguity on one rank",
     [](World& world) {
       shard_tensor(world.rank() == 0 ? numbers({2, 2}) : numbers({2, 2}).t(), chunks(0, {0, 1}));
     }},
    {"shard_tensor: ranks differ in src",
     [](World& world) {
       shard_tensor(numbers({2, 2}), chunks(0, {0, 1}), world.rank());
     }},
    {"shard_tensor: ranks differ in the spec",
     [](World& world) {
       shard_tensor(numbers({2, 2}), chunks(world.rank(), {0, 1}));
     }},
    {"shard_tensor: src",
     [](World&) {
       shard_tensor(numbers({2, 2}), chunks(0, {0, 1}), 2);
     }},
    {"shard_tensor: spec of one rank",
     [](World& world) {
       shard_tensor(numbers({2, 2}), chunks(world.rank() == 0 ? 0 : 5, {0, 1}));
     }},
    {"gather: no out",
     [](World&) {
       ones(chunks(0, {0, 1}), {4}).gather();
     }},
    {"gather: size of out",
     [](World& world) {
       ones(chunks(0, {0, 1}), {4}).gather(0, world.rank() == 0 ? std::optional(torch::empty({5})) : std::nullopt);
     }},
    {"gather: out elsewhere",
     [](World&) {
       ones(chunks(0, {0, 1}), {4}).gather(0, torch::empty({4}));
     }},
    {"gather: dtype of out",
     [](World& world) {
       GatherOptions options;
       options.enforce_dtype = true;
       const auto out = world.rank() == 0 ? std::optional(torch::empty({4}, torch::kDouble)) : std::nullopt;
       ones(chunks(0, {0, 1}), {4}).gather(0, out, options);
     }},
    {"gather: dst",
     [](World&) {
       ones(chunks(0, {0, 1}), {4}).gather(3);
     }},
    {"gather: ranks differ in dst",
     [](World& world) {
       ones(chunks(0, {0, 1}), {4}).gather(world.rank(), torch::empty({4}));
     }},
    {"reshard: spec of one rank",
     [](World& world) {
       ones(chunks(0, {0, 1}), {4, 2}).reshard(chunks(1, {0, world.rank() == 0 ? 1 : 9}));
     }},
    {"reshard: ranks differ",
     [](World& world) {
       ones(chunks(0, {0, 1}), {4, 2}).reshard(chunks(1, {world.rank(), 1 - world.rank()}));
     }},
    {"reshard_: a gradient to compute",
     [](World&) {
       ShardedTensorOptions options;
       options.requires_grad = true;
       ones(chunks(0, {0, 1}), {4, 2}, options).reshard_(chunks(1, {0, 1}));
     }},
    {"local_tensor: none",
     [](World&) {
       ones(EnumerableShardingSpec({{{0}, {2}, "rank:0/cpu"}, {{2}, {2}, "rank:0/cpu"}}), {4}).local_tensor();
     }},
    {"remote_shards: not asked for",
     [](World&) {
       ones(chunks(0, {0, 1}), {4}).remote_shards();
     }},
    {"not a ShardedTensor", [](World&) { ShardedTensor(numbers({4})); }},
    {"state: another rank",
     [](World&) {
       auto state = ones(chunks(0, {0, 1}), {4}).state();
       state.local_rank = 5;
       ShardedTensor::from_state(state);
     }},
    {"state: another world",
     [](World&) {
       auto state = ones(chunks(0, {0, 1}), {4}).state();
       state.global_world_size = 8;
       ShardedTensor::from_state(state);
     }},
    {"state: no bytes",
     [](World&) {
       load_state({'a', 'b'});
     }},
    {"rebuild: nobody has a part",
     [](World&) {
       ShardedTensor::rebuild({}, chunks(0, {0, 1}));
     }},
    {"scope: nested",
     [](World& world) {
       const GroupScope outer(world.group());
       const GroupScope inner(world.group());
     }},
    {"equal: a plain tensor",
     [](World&) {
       ones(chunks(0, {0, 1}), {4}).equal(torch::ones({4}));
     }},
    {"add: two groups",
     [](World& world) {
       ShardedTensorOptions options;
       options.ranks = std::vector<int64_t>{world.rank()};
       ones(chunks(0, {0, 1}), {4}) + ones(chunks(0, {world.rank()}), {4}, options);
     }},
    {"add: a DTensor",
     [](World&) {
       const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
       ones(chunks(0, {0, 1}), {4}) + sherd::ones({4}, mesh, {sherd::Shard(0)});
     }},
    {"to_dtensor: no mesh",
     [](World&) {
       to_dtensor(ones(EnumerableShardingSpec({{{0}, {2}, "rank:0/cpu"}, {{2}, {2}, "rank:0/cpu"}}), {4}));
     }},
    {"to_dtensor: other placements",
     [](World&) {
       to_dtensor(ones(chunks(0, {0, 1}), {4, 2}), init_device_mesh("cpu", {2}, {"dp"}), {sherd::Shard(1)});
     }},
    {"from_dtensor: replicas",
     [](World&) { from_dtensor(sherd::ones({4}, init_device_mesh("cpu", {2}, {"dp"}), {Replicate()})); }},
    {"base: an operator that needs the others",
     [](World& world) {
       const auto base =
           ShardedTensorBase::init_from_local_shards_and_global_metadata({rows_of(world)}, metadata_of_rows());
       base.cumsum(0);
     }},
    {"data_ptr",
     [](World&) {
       ones(chunks(0, {0, 1}), {4}).data_ptr();
     }},
    {"custom op: unknown", [](World&) { custom_sharded_op("aten::no_such_operator", {}); }},
    {"custom op: results",
     [](World&) {
       custom_sharded_op("aten::lgamma", [](std::vector<c10::IValue>&) {});
       torch::lgamma(ones(chunks(0, {0, 1}), {4}).to(torch::kDouble) + 1).add(1);
       custom_sharded_op("aten::digamma", [](std::vector<c10::IValue>& stack) { stack.clear(); });
       torch::digamma(ones(chunks(0, {0, 1}), {4}));
     }},
    {"embedding: ids of one rank",
     [](World& world) {
       torch::embedding(ones(chunks(0, {0, 1}), {4, 2}), torch::full({2}, world.rank() == 0 ? 3 : 9));
     }},
    {"embedding: sparse",
     [](World&) {
       torch::embedding(ones(chunks(0, {0, 1}), {4, 2}), torch::zeros({2}, torch::kLong), -1, false, true);
     }},
    {"embedding: not a table",
     [](World&) {
       torch::embedding(ones(chunks(0, {0, 1}), {4}), torch::zeros({2}, torch::kLong));
     }},
    {"embedding_bag: frequency",
     [](World&) {
       torch::embedding_bag(ones(chunks(0, {0, 1}), {4, 2}), torch::zeros({2}, torch::kLong),
                            torch::zeros({1}, torch::kLong), true);
     }},
    {"embedding_bag: offsets",
     [](World&) {
       torch::embedding_bag(ones(chunks(0, {0, 1}), {4, 2}), torch::zeros({2}, torch::kLong),
                            torch::tensor({int64_t{0}, int64_t{5}}));
     }},
    {"embedding_bag: weights of a mean",
     [](World&) {
       torch::embedding_bag(ones(chunks(0, {0, 1}), {4, 2}), torch::zeros({2}, torch::kLong),
                            torch::zeros({1}, torch::kLong), false, 1, false, torch::ones({2}));
     }},
    {"embedding_renorm_: max_norm",
     [](World&) {
       Tensor weight = ones(chunks(0, {0, 1}), {4, 2});
       torch::embedding_renorm_(weight, torch::zeros({2}, torch::kLong), -1, 2);
     }},
    {"shard_parameter: no such one",
     [](World&) {
       torch::nn::Linear module(2, 2);
       shard_parameter(*module, "weights", chunks(0, {0, 1}));
     }},
    {"shard_parameter: no such one on a rank",
     [](World& world) {
       torch::nn::Linear module(2, 2);
       shard_parameter(*module, world.rank() == 1 ? "weights" : "weight", chunks(0, {0, 1}));
     }},
    {"shard_module: no such one on a rank",
     [](World& world) {
       torch::nn::Sequential module(torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(world.rank() == 0)));
       ShardingPlan plan;
       plan.plan.emplace("0.bias", chunks(0, {0, 1}));
       shard_module(*module, plan);
     }},
    {"shard_module: other plans",
     [](World& world) {
       torch::nn::Linear module(2, 2);
       ShardingPlan plan;
       plan.plan.emplace("weight", chunks(0, {0, 1}));
       if (world.rank() == 1) plan.plan.emplace("bias", chunks(0, {0, 1}));
       shard_module(*module, plan);
     }},
    {"shard_module: a parameter inside",
     [](World&) {
       struct Same : Sharder {
         std::shared_ptr<torch::nn::Module> shard(const std::shared_ptr<torch::nn::Module>& module) override {
           return module;
         }
       };
       torch::nn::Sequential module(torch::nn::Linear(2, 2));
       ShardingPlan plan;
       plan.plan.emplace("0", std::make_shared<Same>());
       plan.plan.emplace("0.weight", chunks(0, {0, 1}));
       shard_module(*module, plan);
     }},
    {"load_sharded_state_dict: size",
     [](World&) {
       torch::nn::Linear module(2, 2);
       load_sharded_state_dict(*module, {{"weight", ones(chunks(0, {0, 1}), {4, 2})}});
     }},
};

std::string class_of(const c10::Error& error) {
  if (dynamic_cast<const c10::ValueError*>(&error) != nullptr) return "ValueError";
  if (dynamic_cast<const c10::TypeError*>(&error) != nullptr) return "TypeError";
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) return "NotImplementedError";
  if (dynamic_cast<const c10::DistBackendError*>(&error) != nullptr) return "DistBackendError";
  return "Error";
}

std::string golden() {
  std::ifstream file(SHERD_SOURCE_DIR "/tests/golden/sharded_errors.txt");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ShardedErrorsTest, EveryRankGetsTheWholeText) {
  std::string all;
  for (const Case& one : kCases) {
    std::vector<std::string> texts(2);
    spawn(2,
          [&](World& world) {
            std::string& text = texts[static_cast<size_t>(world.rank())];
            try {
              one.run(world);
            } catch (const c10::Error& error) {
              text = class_of(error) + "\n" + error.what_without_backtrace();
            }
          },
          {.timeout = std::chrono::seconds(10)});
    EXPECT_NE(texts[0], "") << one.name << ": rank 0 got no error";
    EXPECT_NE(texts[1], "") << one.name << ": rank 1 got no error";
    all += std::string("== ") + one.name + "\n" + texts[0] + "\n";
    if (texts[1] != texts[0]) all += "-- rank 1\n" + texts[1] + "\n";
  }
  const std::string expected = golden();
  if (all != expected) std::ofstream("sharded_errors.actual.txt") << all;
  EXPECT_EQ(all, expected) << "what it is now stands in sharded_errors.actual.txt";
}

}  // namespace
}  // namespace sherd::sharded
