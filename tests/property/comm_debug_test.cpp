// CommDebugMode: counts and bytes are what the algebra says, and each collective knows what it is for.

#include "sherd/comm_debug.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "property/train_alike.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Counts = std::map<std::string, int64_t>;

struct MlpImpl : nn::Module {
  explicit MlpImpl(int64_t width)
      : fc1(register_module("fc1", nn::Linear(width, 2 * width))),
        fc2(register_module("fc2", nn::Linear(2 * width, width))) {}
  Tensor forward(const Tensor& x) { return fc2(torch::gelu(fc1(x))); }
  nn::Linear fc1, fc2;
};
TORCH_MODULE(Mlp);

Mlp mlp(int64_t width = 6) {
  return made([&] { return Mlp(width); });
}

int64_t total(const std::vector<CommRecord>& records) {
  int64_t bytes = 0;
  for (const CommRecord& record : records) bytes += record.bytes;
  return bytes;
}

TEST(CommDebugTest, AnMlpOfTwoStylesSumsOnceInEachPass) {
  for (const int ranks : {2, 3}) {
    spawn(ranks, [&](World&) {
      const DeviceMesh tp = init_device_mesh("cpu", {ranks}, {"tp"});
      Mlp model = mlp();
      parallelize_module(*model, tp, {{"fc1", ColwiseParallel()}, {"fc2", RowwiseParallel()}});
      const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Replicate()}).requires_grad_();
      const CommDebugMode debug(*model);
      const Tensor y = model->forward(x);
      // A ring brings every element twice, less this rank's share.
      const int64_t sum = 2 * 4 * 6 * (ranks - 1) / ranks * int64_t{sizeof(double)};
      EXPECT_EQ(debug.counts(), (Counts{{"all_reduce", 1}}));
      EXPECT_EQ(debug.bytes(), sum);
      const CommRecord forward = debug.records().at(0);
      EXPECT_EQ(forward.axis, "tp");
      EXPECT_EQ(forward.operation, "tensor parallel");
      EXPECT_EQ(forward.module, "fc2");
      EXPECT_EQ(forward.dtype, "f64");
      EXPECT_EQ(forward.pass, CommPass::forward);
      EXPECT_FALSE(forward.background);

      y.sum().backward();
      EXPECT_EQ(debug.counts(CommPass::forward), (Counts{{"all_reduce", 1}}));
      EXPECT_EQ(debug.counts(CommPass::backward), (Counts{{"all_reduce", 1}})) << to_string(debug);
      EXPECT_EQ(debug.bytes(CommPass::forward), sum);
      EXPECT_EQ(debug.bytes(CommPass::backward), sum);
      const CommRecord backward = debug.records().at(1);
      EXPECT_EQ(backward.operation, "gradient") << "of the input, which is a leaf";
      EXPECT_EQ(backward.pass, CommPass::backward);
    });
  }
}

TEST(CommDebugTest, DataParallelSumsGradientsInBuckets) {
  spawn(2, [](World&) {
    const DeviceMesh dp = init_device_mesh("cpu", {2}, {"dp"});
    Mlp model = mlp();
    data_parallel(model, dp);
    const Tensor x = distribute_tensor(numbers({4, 6}), dp, {Shard(0)});
    const CommDebugMode debug(*model);
    model->forward(x).pow(2).sum().backward();
    int64_t parameters = 0;
    for (const Tensor& p : model->parameters()) parameters += p.numel();
    std::vector<CommRecord> buckets;
    for (const CommRecord& record : debug.records()) {
      if (record.operation == "gradient bucket") buckets.push_back(record);
    }
    ASSERT_FALSE(buckets.empty()) << to_string(debug);
    EXPECT_EQ(total(buckets), parameters * int64_t{sizeof(double)});  // of two ranks, a ring brings each element once
    for (const CommRecord& record : buckets) {
      EXPECT_EQ(record.collective, "all_reduce");
      EXPECT_EQ(record.axis, "dp");
      EXPECT_EQ(record.pass, CommPass::backward);
      EXPECT_TRUE(record.background);
      EXPECT_FALSE(record.parameters.empty());
    }
  });
}

TEST(CommDebugTest, FullyShardedModulesAreGatheredByName) {
  spawn(2, [](World&) {
    const DeviceMesh dp = init_device_mesh("cpu", {2}, {"dp"});
    Mlp model = mlp();
    fully_shard(model, dp, {.units = {"fc1", "fc2"}});
    const Tensor x = distribute_tensor(numbers({4, 6}), dp, {Shard(0)});
    const CommDebugMode debug(*model);
    model->forward(x).pow(2).sum().backward();
    std::map<std::string, int64_t> gathered;  // in forward, by module
    std::map<std::string, int64_t> scattered;
    for (const CommRecord& record : debug.records()) {
      if (record.operation == "gather on use" && record.pass == CommPass::forward) {
        gathered[record.module] += record.bytes;
      }
      if (record.operation == "gradient bucket") {
        EXPECT_EQ(record.collective, "reduce_scatter");
        scattered[record.module] += record.bytes;
      }
    }
    const auto half = [](const nn::Linear& layer) {
      int64_t bytes = 0;
      for (const Tensor& p : layer->parameters()) bytes += p.numel() * int64_t{sizeof(double)} / 2;
      return bytes;
    };
    EXPECT_EQ(gathered, (Counts{{"fc1", half(model->fc1)}, {"fc2", half(model->fc2)}})) << to_string(debug);
    EXPECT_EQ(scattered, gathered) << to_string(debug);
  });
}

TEST(CommDebugTest, AnOperatorThatMovesAnOperandIsNamed) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor a = distribute_tensor(numbers({8, 6}), mesh, {Shard(0), Shard(1)});
    const Tensor weight = distribute_tensor(numbers({6, 10}), mesh, {Replicate(), Shard(1)});
    const CommDebugMode debug({{"layer.weight", weight}}, {.operators = true});
    const Tensor c = a.mm(weight);
    const std::vector<CommRecord> records = debug.records();
    ASSERT_EQ(records.size(), 1) << to_string(debug);
    EXPECT_EQ(records[0].operation, "aten::mm");
    EXPECT_EQ(records[0].axis, "tp");
    EXPECT_EQ(records[0].module, "layer");
    EXPECT_THAT(records[0].parameters, ElementsAre("layer.weight"));
    EXPECT_GE(records[0].operand, 0);
    EXPECT_NE(records[0].operand_from, records[0].operand_to);
    EXPECT_FALSE(debug.operators().empty());
  });
}

TEST(CommDebugTest, GroupsOfSeveralAxesAreNamedByAll) {
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor a = distribute_tensor(numbers({8, 6}), mesh, {Shard(0), Shard(0)});
    {
      const CommDebugMode debug;
      full_tensor(a);
      ASSERT_EQ(debug.records().size(), 1) << to_string(debug);
      EXPECT_EQ(debug.records()[0].axis, "dp_tp");
      EXPECT_EQ(debug.records()[0].operation, "full_tensor");
      EXPECT_EQ(debug.bytes(), (8 * 6 - 2 * 6) * int64_t{sizeof(double)});
    }
    const CommDebugMode debug;
    barrier(world.group());
    ASSERT_EQ(debug.records().size(), 1);
    EXPECT_EQ(debug.records()[0].operation, "");
    EXPECT_THAT(to_string(debug), HasSubstr("(the program)"));
  });
}

TEST(CommDebugTest, NamedScopesNameWhatHasNoParameters) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)}).requires_grad_();
    const CommDebugMode debug;
    Tensor y;
    {
      const NamedScope outer("encoder");
      const NamedScope inner("mixing");
      y = redistribute(x, {Shard(1)});
    }
    y.pow(2).sum().backward();
    const std::vector<CommRecord> records = debug.records();
    ASSERT_EQ(records.size(), 2) << to_string(debug);
    EXPECT_EQ(records[0].scope, "encoder.mixing");
    EXPECT_EQ(records[0].pass, CommPass::forward);
    EXPECT_EQ(records[1].scope, "encoder.mixing") << "the backward pass belongs to the scope, too";
    EXPECT_EQ(records[1].pass, CommPass::backward);
    EXPECT_EQ(records[1].operation, "redistribute");
  });
}

TEST(CommDebugTest, ModesNest) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)});
    CommDebugMode outer;
    full_tensor(x);
    {
      const CommDebugMode inner;
      full_tensor(x);
      EXPECT_EQ(inner.records().size(), 1);
      EXPECT_EQ(outer.records().size(), 2);
    }
    full_tensor(x);
    outer.stop();
    full_tensor(x);
    EXPECT_EQ(outer.counts(), (Counts{{"all_gather", 3}}));
    CommRecorder recorder;
    full_tensor(x);
    EXPECT_EQ(recorder.calls().size(), 1) << "recorders go on without it";
  });
}

TEST(CommDebugTest, AnExceptionEndsIt) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)});
    const bool threads = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    try {
      const CommDebugMode debug;
      x.mm(x);  // shapes do not fit
      FAIL();
    } catch (const std::exception&) {
    }
    EXPECT_EQ(c10::AutogradState::get_tls_state().get_multithreading_enabled(), threads);
    const CommDebugMode debug;
    EXPECT_THROW(x.mm(x), std::exception);
    full_tensor(x);
    ASSERT_FALSE(debug.records().empty());
    EXPECT_EQ(debug.records().back().operation, "full_tensor") << to_string(debug) << "the operator that threw is over";
  });
}

TEST(CommDebugTest, OneThatAnotherThreadStoppedHearsNothingMore) {
  spawn(2, [](World& world) {
    CommDebugMode debug;
    barrier(world.group());
    std::thread([&] { debug.stop(); }).join();
    const int64_t duration = debug.records().at(0).duration_ns;
    barrier(world.group());
    EXPECT_EQ(debug.counts(), (Counts{{"barrier", 1}}));
    EXPECT_EQ(debug.records().at(0).duration_ns, duration);
    const CommDebugMode next;
    barrier(world.group());
    EXPECT_EQ(next.counts(), (Counts{{"barrier", 1}}));
  });
}

TEST(CommDebugTest, NothingIsNothing) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)});
    const CommDebugMode debug;
    x.add(1).relu();
    EXPECT_EQ(to_string(debug), "no communication\n");
    EXPECT_THAT(debug.records(), IsEmpty());
    EXPECT_EQ(debug.bytes(), 0);
    const auto json = nlohmann::json::parse(to_json(debug));
    EXPECT_TRUE(json["records"].empty());
    EXPECT_EQ(json["total"]["forward"]["bytes"], 0);
  });
}

TEST(CommDebugTest, WorksWithoutRanks) {
  const CommDebugMode debug;
  torch::ones({2}).add(1);
  EXPECT_EQ(to_string(debug), "no communication\n");
}

TEST(CommDebugTest, TheTableAddsUp) {
  spawn(2, [](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)});
    const CommDebugMode debug;
    full_tensor(x);
    full_tensor(x);
    redistribute(x, {Shard(1)});
    EXPECT_EQ(to_string(debug),
              "pass      operation     module  collective  axis  dtype  calls  received\n"
              "forward   full_tensor           all_gather  tp    f64        2     192 B\n"
              "forward   redistribute          all_to_all  tp    f64        1      48 B\n"
              "forward   all                                                3     240 B\n"
              "backward  all                                                0       0 B\n");
    const auto json = nlohmann::json::parse(to_json(debug));
    EXPECT_EQ(json["rank"], world.rank());
    EXPECT_EQ(json["total"]["forward"]["counts"]["all_gather"], 2);
    EXPECT_EQ(json["records"].size(), 3);
    EXPECT_EQ(json["records"][0]["bytes"], 96);
    EXPECT_EQ(json["records"][2]["axis"], "tp");
  });
}

}  // namespace
}  // namespace sherd::testing
