// Attention over a sequence that ranks share equals attention on one device, gradients included.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using Method = ContextParallelOptions::Method;

Tensor numbers(at::IntArrayRef shape, int64_t salt) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

struct Sample {
  int64_t batch = 2, heads = 4, key_heads = 4, length = 12, keys = 12, width = 3, value_width = 3;
  bool causal = true;
};

struct Answer {
  Tensor output, query_grad, key_grad, value_grad;
};

Answer attend(Tensor query, Tensor key, Tensor value, const Sample& sample) {
  for (Tensor* tensor : {&query, &key, &value}) tensor->requires_grad_(true);
  const Tensor output = torch::scaled_dot_product_attention(query, key, value, {}, 0.0, sample.causal, std::nullopt,
                                                            sample.heads != sample.key_heads);
  (output * numbers(output.sizes(), 7)).sum().backward();
  return {output.detach(), query.grad(), key.grad(), value.grad()};
}

void expect_equal(const Answer& got, const Answer& expected) {
  const auto near = [](const Tensor& a, const Tensor& b, const char* what) {
    const Tensor whole = full_tensor(a);
    ASSERT_EQ(whole.sizes(), b.sizes()) << what;
    EXPECT_LE((whole - b).abs().max().item<double>(), 1e-10) << what;
  };
  near(got.output, expected.output, "output");
  near(got.query_grad, expected.query_grad, "gradient of the query");
  near(got.key_grad, expected.key_grad, "gradient of the key");
  near(got.value_grad, expected.value_grad, "gradient of the value");
}

std::vector<Tensor> inputs_of(const Sample& s) {
  return {numbers({s.batch, s.heads, s.length, s.width}, 1), numbers({s.batch, s.key_heads, s.keys, s.width}, 2),
          numbers({s.batch, s.key_heads, s.keys, s.value_width}, 3)};
}

// What a rank sends and receives in the forward must not grow with the number of ranks that hold other parts.
void check(const Sample& sample, const std::string& mesh_text, const Placements& query, const Placements& key,
           Method method) {
  SCOPED_TRACE(mesh_text + to_string(query) + to_string(key) + (method == Method::ring ? " ring" : " all_to_all"));
  const std::vector<Tensor> inputs = inputs_of(sample);
  const Answer expected = attend(inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), sample);
  const Mesh ranks = parse_mesh(mesh_text);
  spawn(static_cast<int>(ranks.size()), [&](World&) {
    const DeviceMesh mesh("cpu", ranks);
    const auto place = [&](const Tensor& tensor, const Placements& placements) {
      return distribute_tensor(tensor, mesh, placements, {.source = std::nullopt});
    };
    const ContextParallel scope(mesh["cp"], {.method = method});
    expect_equal(attend(place(inputs[0], query), place(inputs[1], key), place(inputs[2], key), sample), expected);
  });
}

void check_both(const Sample& sample, const std::string& mesh, const Placements& query, const Placements& key) {
  for (const Method method : {Method::ring, Method::all_to_all}) check(sample, mesh, query, key, method);
}

TEST(ContextParallelTest, EqualsOneDevice) {
  for (const bool causal : {true, false}) {
    for (const char* mesh : {"[cp=1]", "[cp=2]", "[cp=4]"}) {
      check_both({.causal = causal}, mesh, {Shard(2)}, {Shard(2)});
    }
    check({.causal = causal}, "[cp=3]", {Shard(2)}, {Shard(2)}, Method::ring);
    check({.heads = 3, .key_heads = 3, .causal = causal}, "[cp=3]", {Shard(2)}, {Shard(2)}, Method::all_to_all);
  }
}

TEST(ContextParallelTest, UnevenAndEmptyParts) {
  for (const bool causal : {true, false}) {
    // 7 positions over 4 ranks: 2, 2, 2, 1. Then 5: 2, 2, 1, 0.
    for (const int64_t length : {7, 5}) {
      check_both({.length = length, .keys = length, .causal = causal}, "[cp=4]", {Shard(2)}, {Shard(2)});
    }
    check_both({.causal = causal}, "[cp=2]", {Ragged(2, {0, 3, 12})}, {Ragged(2, {0, 3, 12})});
    check({.causal = causal}, "[cp=2]", {Ragged(2, {0, 3, 12})}, {Ragged(2, {0, 10, 12})}, Method::ring);
  }
}

TEST(ContextParallelTest, BalancedCuts) {
  for (const bool causal : {true, false}) {
    check_both({.causal = causal}, "[cp=2]", {StridedShard(2, 3)}, {StridedShard(2, 3)});
    check_both({.causal = causal}, "[cp=4]", {StridedShard(2, 3)}, {StridedShard(2, 3)});
    check({.causal = causal}, "[cp=3]", {StridedShard(2, 2)}, {Shard(2)}, Method::ring);
  }
}

TEST(ContextParallelTest, BesideOtherAxes) {
  for (const bool causal : {true, false}) {
    check_both({.causal = causal}, "[dp=2, cp=2]", {Shard(0), Shard(2)}, {Shard(0), Shard(2)});
    check_both({.causal = causal}, "[cp=2, tp=2]", {Shard(2), Shard(1)}, {Shard(2), Shard(1)});
    check_both({.causal = causal}, "[tp=2, cp=2]", {Shard(1), Shard(2)}, {Shard(1), Shard(2)});
    check_both({.causal = causal}, "[dp=2, cp=2]", {Replicate(), Shard(2)}, {Replicate(), Shard(2)});
    check_both({.causal = causal}, "[dp=2, cp=2]", {Shard(3), Shard(2)}, {Shard(2), Shard(2)});
  }
}

TEST(ContextParallelTest, KeysOfTheirOwn) {
  for (const bool causal : {true, false}) {
    // Another number of keys, of their width, of heads.
    check({.length = 6, .keys = 10, .causal = causal}, "[cp=2]", {Shard(2)}, {Shard(2)}, Method::ring);
    check({.length = 9, .keys = 4, .causal = causal}, "[cp=3]", {Shard(2)}, {Replicate()}, Method::ring);
    check({.value_width = 5, .causal = causal}, "[cp=2]", {Shard(2)}, {Shard(2)}, Method::ring);
    check({.key_heads = 2, .causal = causal}, "[cp=2]", {Shard(2)}, {Shard(2)}, Method::ring);
    check({.key_heads = 2, .causal = causal}, "[cp=2, tp=2]", {Shard(2), Shard(1)}, {Shard(2), Shard(1)}, Method::ring);
    check({.key_heads = 1, .causal = causal}, "[cp=2, tp=2]", {Shard(2), Shard(1)}, {Shard(2), Replicate()},
          Method::ring);
    check({.key_heads = 2, .causal = causal}, "[cp=2]", {Shard(2)}, {Shard(2)}, Method::all_to_all);
  }
}

TEST(ContextParallelTest, OutsideOfTheScopeAndWithAMaskItIsRightToo) {
  const Sample sample;
  const std::vector<Tensor> inputs = inputs_of(sample);
  const Answer expected = attend(inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), sample);
  const Tensor mask = torch::ones({12, 12}, torch::kBool).triu(-2);
  const Tensor masked = torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], mask);
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"cp"});
    const auto cut = [&](const Tensor& tensor) {
      return distribute_tensor(tensor, mesh, {Shard(2)}, {.source = std::nullopt});
    };
    expect_equal(attend(cut(inputs[0]), cut(inputs[1]), cut(inputs[2]), sample), expected);
    for (const Method method : {Method::ring, Method::all_to_all}) {
      const ContextParallel scope(mesh, {.method = method});
      const Tensor got = torch::scaled_dot_product_attention(cut(inputs[0]), cut(inputs[1]), cut(inputs[2]), mask);
      EXPECT_LE((full_tensor(got) - masked).abs().max().item<double>(), 1e-10);
    }
  });
}

Answer attend_masked(Tensor query, Tensor key, Tensor value, const Tensor& mask) {
  for (Tensor* tensor : {&query, &key, &value}) tensor->requires_grad_(true);
  const Tensor output = torch::scaled_dot_product_attention(query, key, value, mask, 0.0, false, std::nullopt,
                                                            query.size(1) != key.size(1));
  (output * numbers(output.sizes(), 7)).sum().backward();
  return {output.detach(), query.grad(), key.grad(), value.grad()};
}

// A mask, plain or distributed in any way, in a ring: bool or of numbers, of the scores' shape or with ones in it.
void check_masked(const Sample& sample, const Tensor& mask, const std::string& mesh_text, const Placements& query,
                  const Placements& key) {
  SCOPED_TRACE(mesh_text + to_string(query) + to_string(key) + " mask " + sherd::to_string(mask.sizes().vec()));
  const std::vector<Tensor> inputs = inputs_of(sample);
  const Answer expected = attend_masked(inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), mask);
  const Mesh ranks = parse_mesh(mesh_text);
  spawn(static_cast<int>(ranks.size()), [&](World&) {
    const DeviceMesh mesh("cpu", ranks);
    const auto place = [&](const Tensor& tensor, const Placements& placements) {
      return distribute_tensor(tensor, mesh, placements, {.source = std::nullopt});
    };
    const ContextParallel scope(mesh["cp"]);
    for (const int64_t dim : {-1, 0, static_cast<int>(mask.dim()) - 1}) {
      const Tensor given = dim < 0 ? mask : place(mask, Placements(query.size(), Shard(dim)));
      expect_equal(attend_masked(place(inputs[0], query), place(inputs[1], key), place(inputs[2], key), given),
                   expected);
    }
  });
}

TEST(ContextParallelTest, Masks) {
  const auto near = [](int64_t rows, int64_t keys) { return torch::ones({rows, keys}, torch::kBool).triu(-2).tril(3); };
  for (const char* mesh : {"[cp=1]", "[cp=2]", "[cp=3]", "[cp=4]"}) {
    check_masked({}, near(12, 12), mesh, {Shard(2)}, {Shard(2)});
    check_masked({}, numbers({2, 4, 12, 12}, 5), mesh, {Shard(2)}, {Shard(2)});
  }
  check_masked({}, numbers({4, 1, 12}, 5), "[cp=2]", {Shard(2)}, {Shard(2)});
  check_masked({}, numbers({2, 1, 12, 1}, 5), "[cp=2]", {Shard(2)}, {Shard(2)});
  check_masked({.length = 7, .keys = 7}, near(7, 7), "[cp=4]", {Shard(2)}, {Shard(2)});
  check_masked({.length = 5, .keys = 9}, numbers({2, 1, 5, 9}, 5), "[cp=4]", {Shard(2)}, {Shard(2)});
  check_masked({}, near(12, 12), "[cp=2]", {StridedShard(2, 3)}, {Ragged(2, {0, 10, 12})});
  check_masked({.key_heads = 2}, numbers({1, 4, 12, 12}, 5), "[cp=2]", {Shard(2)}, {Shard(2)});
  check_masked({}, numbers({2, 1, 12, 12}, 5), "[dp=2, cp=2]", {Shard(0), Shard(2)}, {Shard(0), Shard(2)});
  check_masked({}, numbers({1, 4, 12, 12}, 5), "[cp=2, tp=2]", {Shard(2), Shard(1)}, {Shard(2), Shard(1)});
}

// The first queries see nothing, others none of the keys of some ranks.
TEST(ContextParallelTest, QueriesThatSeeNoKey) {
  Tensor mask = torch::ones({12, 12}, torch::kBool).tril(-3);
  check_masked({}, mask, "[cp=3]", {Shard(2)}, {Shard(2)});
  check_masked({}, torch::zeros({12, 12}, torch::kDouble).masked_fill(mask.logical_not(), -INFINITY), "[cp=4]",
               {StridedShard(2, 3)}, {Shard(2)});
}

TEST(ContextParallelTest, ARingWithAMaskGathersNothing) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"cp"});
    const auto cut = [&](int64_t salt) {
      return distribute_tensor(numbers({1, 2, 16, 4}, salt), mesh, {Shard(2)}, {.source = std::nullopt});
    };
    const Tensor query = cut(1), key = cut(2), value = cut(3);
    const ContextParallel scope(mesh);
    const CommRecorder recorder;
    torch::scaled_dot_product_attention(query, key, value, torch::ones({16, 16}, torch::kBool).tril());
    EXPECT_EQ(recorder.bytes(), 3 * 2 * (2 * 4 * 4) * 8);  // three blocks of keys and values, and nothing of the mask
    for (const CollectiveCall& call : recorder.calls()) {
      EXPECT_TRUE(call.name == "send" || call.name == "receive") << call.name;
    }
  });
}

// A mask with a gradient goes the ordinary way.
TEST(ContextParallelTest, AMaskThatLearns) {
  const std::vector<Tensor> inputs = inputs_of({});
  Tensor alone = numbers({12, 12}, 5).requires_grad_(true);
  const Answer expected = attend_masked(inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), alone);
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"cp"});
    const auto cut = [&](const Tensor& tensor) {
      return distribute_tensor(tensor, mesh, {Shard(2)}, {.source = std::nullopt});
    };
    const ContextParallel scope(mesh);
    Tensor mask = distribute_tensor(alone.detach(), mesh, {Replicate()}, {.source = std::nullopt}).requires_grad_(true);
    expect_equal(attend_masked(cut(inputs[0]), cut(inputs[1]), cut(inputs[2]), mask), expected);
    EXPECT_LE((full_tensor(mask.grad()) - alone.grad()).abs().max().item<double>(), 1e-10);
  });
}

TEST(ContextParallelTest, HalfPrecisionIsAsGoodAsOnOneDevice) {
  const Sample sample;
  std::vector<Tensor> inputs = inputs_of(sample);
  const Answer expected = attend(inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), sample);
  for (Tensor& input : inputs) input = input.to(torch::kBFloat16);
  spawn(3, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"cp"});
    const auto cut = [&](const Tensor& tensor) {
      return distribute_tensor(tensor, mesh, {Shard(2)}, {.source = std::nullopt});
    };
    const ContextParallel scope(mesh);
    const Answer got = attend(cut(inputs[0]), cut(inputs[1]), cut(inputs[2]), sample);
    ASSERT_EQ(got.output.scalar_type(), torch::kBFloat16);
    EXPECT_LE((full_tensor(got.output).to(torch::kDouble) - expected.output).abs().max().item<double>(), 0.03);
    EXPECT_LE((full_tensor(got.key_grad).to(torch::kDouble) - expected.key_grad).abs().max().item<double>(), 0.06);
  });
}

TEST(ContextParallelTest, ARingMovesEachBlockPastEachRankAndGathersNothing) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"cp"});
    const auto cut = [&](int64_t salt) {
      return distribute_tensor(numbers({1, 2, 16, 4}, salt), mesh, {Shard(2)}, {.source = std::nullopt});
    };
    const Tensor query = cut(1), key = cut(2), value = cut(3);
    const ContextParallel scope(mesh);
    const CommRecorder recorder;
    torch::scaled_dot_product_attention(query, key, value, {}, 0.0, true);
    const int64_t block = 2 * (2 * 4 * 4) * 8;  // keys and values of 4 positions
    EXPECT_EQ(recorder.bytes(), 3 * block);
    for (const CollectiveCall& call : recorder.calls()) {
      EXPECT_TRUE(call.name == "send" || call.name == "receive") << call.name;
      EXPECT_LE(call.numel, block / 8) << "more than a block at once";
    }
  });
}

TEST(ContextParallelTest, ABalancedCutSharesTheWorkOfCausalAttention) {
  // Pairs of positions that a rank works on.
  const auto work = [](const Placement& cut, int64_t length, int64_t ranks) {
    const Layout layout{Mesh({{"cp", ranks}}), {length}, {cut}};
    std::vector<double> pairs;
    for (int64_t r = 0; r < ranks; ++r) {
      double sum = 0;
      const Dims at{r};
      for (const sherd::Run& run : local_runs(layout, 0, at)) {
        for (int64_t i = 0; i < run.size; ++i) sum += static_cast<double>(run.offset + i + 1);
      }
      pairs.push_back(sum);
    }
    return *std::max_element(pairs.begin(), pairs.end()) * static_cast<double>(ranks) /
           std::accumulate(pairs.begin(), pairs.end(), 0.0);
  };
  EXPECT_GT(work(Shard(0), 1024, 4), 1.7);
  EXPECT_LT(work(balanced_shard(0, 1024, 4), 1024, 4), 1.05);
  EXPECT_EQ(balanced_shard(1, 1024, 4), Placement(StridedShard(1, 16)));
  EXPECT_EQ(balanced_shard(1, 24, 4), Placement(StridedShard(1, 6)));
  EXPECT_EQ(balanced_shard(1, 23, 4), Placement(Shard(1)));
}

TEST(ContextParallelTest, ATensorIsCutInBalanceOnItsOwnMeshOrALargerOne) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
    const Tensor ids = torch::arange(64).view({4, 16});
    const Tensor alone = context_parallel_shard(ids, mesh["cp"], 1);
    EXPECT_EQ(to_string(alone), "i64[4, 16@cp(split=8)] on " + to_string(mesh["cp"]));
    EXPECT_TRUE(full_tensor(alone).equal(ids));
    const Tensor batch = distribute_tensor(ids, mesh, {Shard(0), Replicate()});
    const Tensor both = context_parallel_shard(batch, mesh["cp"], -1);
    EXPECT_EQ(to_string(both), "i64[4@dp, 16@cp(split=8)] on [dp=2, cp=2]");
    EXPECT_TRUE(full_tensor(both).equal(ids));
  });
}

TEST(ContextParallelTest, ViewsMergeAndSplitBalancedCutsWithoutMovingAnything) {
  const Tensor x = numbers({4, 24, 3}, 1);
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
    for (const Placement& batch : {Placement(Shard(0)), Placement(Replicate())}) {
      for (const Placement& cut : {Placement(Shard(1)), Placement(StridedShard(1, 2)), Placement(StridedShard(1, 6))}) {
        const Tensor part = distribute_tensor(x, mesh, {batch, cut}, {.source = std::nullopt});
        const CommRecorder recorder;
        const Tensor flat = part.flatten(0, 1);
        const Tensor back = flat.view({4, 24, 3});
        EXPECT_TRUE(recorder.calls().empty()) << to_string(part) << " " << recorder.to_string();
        EXPECT_EQ(placements_of(back), placements_of(part)) << to_string(flat);
        EXPECT_TRUE(full_tensor(flat).equal(x.flatten(0, 1))) << to_string(flat);
        EXPECT_TRUE(full_tensor(back).equal(x)) << to_string(flat);
      }
    }
  });
}

// A block of a transformer as it stands, between its linear layers, whose inputs have a batch and a sequence.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl() {
    for (auto* layer : {&query, &key, &value, &out}) *layer = torch::nn::Linear(8, 8);
    register_module("query", query);
    register_module("key", key);
    register_module("value", value);
    register_module("out", out);
    register_module("norm", norm);
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    int64_t salt = 0;
    for (const Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++salt));
  }
  Tensor forward(const Tensor& given) {
    const Tensor x = norm(given);
    const auto by_head = [&](const Tensor& y) { return y.view({y.size(0), y.size(1), 2, 4}).transpose(1, 2); };
    const Tensor mixed =
        torch::scaled_dot_product_attention(by_head(query(x)), by_head(key(x)), by_head(value(x)), {}, 0.0, true);
    return given + torch::gelu(out(mixed.transpose(1, 2).reshape(x.sizes())));
  }
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
};
TORCH_MODULE(Block);

TEST(ContextParallelTest, AnUnchangedModuleNeverGathersTheSequence) {
  const Tensor input = numbers({2, 16, 8}, 4);
  const Tensor target = torch::arange(32).remainder(8).view({2, 16});
  const auto loss_of = [&](Block& block, const Tensor& x, const Tensor& y) {
    const Tensor logits = block->forward(x);
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), y.flatten());
  };
  std::vector<Block> blocks;
  for (int i = 0; i < 5; ++i) blocks.emplace_back();
  const Tensor expected = loss_of(blocks[4], input, target);
  expected.backward();
  for (const bool balanced : {false, true}) {
    for (Block& block : blocks) {
      if (&block != &blocks[4]) block = Block();
    }
    spawn(4, [&](World& world) {
      const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
      Block& block = blocks[static_cast<size_t>(world.rank())];
      distribute_module(block, mesh);
      const Placement cut = balanced ? balanced_shard(1, 16, 2) : Placement(Shard(1));
      const auto place = [&](const Tensor& tensor) {
        return distribute_tensor(tensor, mesh, {Shard(0), cut}, {.source = std::nullopt});
      };
      const ContextParallel scope(mesh["cp"]);
      const Tensor x = place(input), y = place(target);
      const CommRecorder recorder;
      const Tensor loss = loss_of(block, x, y);
      for (const CollectiveCall& call : recorder.calls()) {
        EXPECT_TRUE(call.name == "send" || call.name == "receive" || call.bytes <= 64) << recorder.to_string();
      }
      EXPECT_NEAR(full_tensor(loss).item<double>(), expected.item<double>(), 1e-10);
      loss.backward();
      for (const auto& parameter : block->named_parameters()) {
        const Tensor grad = full_tensor(parameter.value().grad());
        EXPECT_LE((grad - blocks[4]->named_parameters()[parameter.key()].grad()).abs().max().item<double>(), 1e-10)
            << parameter.key();
      }
    });
  }
}

TEST(ContextParallelTest, ServesWithoutGradients) {
  const Sample sample;
  const std::vector<Tensor> inputs = inputs_of(sample);
  const Tensor expected = torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, 0.0, true);
  spawn(2, [&](World&) {
    const c10::InferenceMode inference;
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"cp"});
    const auto cut = [&](const Tensor& tensor) {
      return distribute_tensor(tensor, mesh, {Shard(2)}, {.source = std::nullopt});
    };
    for (const Method method : {Method::ring, Method::all_to_all}) {
      const ContextParallel scope(mesh, {.method = method});
      const Tensor got =
          torch::scaled_dot_product_attention(cut(inputs[0]), cut(inputs[1]), cut(inputs[2]), {}, 0.0, true);
      EXPECT_LE((full_tensor(got) - expected).abs().max().item<double>(), 1e-10);
    }
  });
}

}  // namespace
}  // namespace sherd::testing
