// A module under a tensor-parallel plan, otherwise unchanged, trains as on one device; and what it moves.

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "property/train_alike.h"
#include "sherd/sherd.h"
#include "tensor/wishes.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using ::testing::ElementsAre;

struct MlpImpl : nn::Module {
  explicit MlpImpl(int64_t width, bool bias = true)
      : fc1(register_module("fc1", nn::Linear(nn::LinearOptions(width, 2 * width).bias(bias)))),
        fc2(register_module("fc2", nn::Linear(nn::LinearOptions(2 * width, width).bias(bias)))) {}
  Tensor forward(const Tensor& x) { return fc2(torch::gelu(fc1(x))); }
  nn::Linear fc1, fc2;
};
TORCH_MODULE(Mlp);

// Attention as users write it, with a linear layer each.
struct AttentionImpl : nn::Module {
  AttentionImpl(int64_t width, int64_t heads)
      : heads_(heads),
        wq(register_module("wq", nn::Linear(nn::LinearOptions(width, width).bias(false)))),
        wk(register_module("wk", nn::Linear(nn::LinearOptions(width, width).bias(false)))),
        wv(register_module("wv", nn::Linear(nn::LinearOptions(width, width)))),
        wo(register_module("wo", nn::Linear(nn::LinearOptions(width, width)))) {}
  Tensor forward(const Tensor& x) {
    const auto split = [&](const Tensor& t) {
      return t.view({x.size(0), x.size(1), heads_, x.size(2) / heads_}).transpose(1, 2);
    };
    const Tensor attended = torch::scaled_dot_product_attention(split(wq(x)), split(wk(x)), split(wv(x)), {}, 0, true);
    return wo(attended.transpose(1, 2).reshape(x.sizes()));
  }
  int64_t heads_;
  nn::Linear wq, wk, wv, wo;
};
TORCH_MODULE(Attention);

// A small language model; where `tied`, the head is the embedding's table.
struct ModelImpl : nn::Module {
  explicit ModelImpl(bool tied)
      : tokens(register_module("tokens", nn::Embedding(10, 8))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({8})))),
        attention(register_module("attention", Attention(8, 4))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({8})))),
        mlp(register_module("mlp", Mlp(8))),
        head(register_module("head", nn::Linear(nn::LinearOptions(8, 10).bias(false)))) {
    scale = register_parameter("scale", torch::ones({8}));
    if (tied) head->weight = tokens->weight;
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = tokens(ids) * scale;
    x = x + attention(norm1(x));
    x = x + mlp(norm2(x));
    return head(x);
  }
  nn::Embedding tokens;
  nn::LayerNorm norm1;
  Attention attention;
  nn::LayerNorm norm2;
  Mlp mlp;
  nn::Linear head;
  Tensor scale;
};
TORCH_MODULE(Model);

// `make` makes a module, `call` runs it.
template <class Make, class Call>
void check(const Make& make, const ParallelPlan& plan, const Tensor& input, const Call& call) {
  auto dense = made(make);
  const Trained expected = train(*dense, [&] { return call(dense, input); });
  for (const char* text : {"[tp=1]", "[tp=2]", "[tp=3]", "[tp=4]", "[dp=2, tp=2]"}) {
    const Mesh ranks = parse_mesh(text);
    spawn(static_cast<int>(ranks.size()), [&](World&) {
      const DeviceMesh tp = DeviceMesh("cpu", ranks)["tp"];
      for (const bool plain : {false, true}) {
        auto module = made(make);
        parallelize_module(*module, tp, plan);
        for (const Tensor& parameter : module->parameters()) EXPECT_TRUE(is_dtensor(parameter));
        const Tensor x = plain ? input : distribute_tensor(input, tp, {Replicate()});
        const Trained got = train(*module, [&] { return call(module, x); });
        expect_alike(got, expected, std::string(text) + (plain ? ", plain input" : ""));
      }
    });
  }
}

const auto kForward = [](auto& module, const Tensor& x) { return module->forward(x); };

ParallelPlan mlp_plan(const std::string& prefix = "") {
  return {{prefix + "fc1", ColwiseParallel()}, {prefix + "fc2", RowwiseParallel()}};
}

TEST(TensorParallelTest, Mlp) {
  check([] { return Mlp(6); }, mlp_plan(), numbers({5, 6}), kForward);
  check([] { return Mlp(6); }, mlp_plan(), numbers({2, 5, 6}), kForward);
  check([] { return Mlp(5, false); }, mlp_plan(), numbers({4, 5}), kForward);
  check([] { return Mlp(5, false); }, mlp_plan(), numbers({2, 0, 5}), kForward);
}

TEST(TensorParallelTest, OutputsAreWhereTheStyleSays) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const auto output_of = [&](const Tensor& x, const ParallelStyle& style) {
      auto linear = made([] { return nn::Linear(6, 4); });
      parallelize_module(linear, tp, style);
      return placements_of(linear->forward(x));
    };
    const Tensor x = distribute_tensor(numbers({2, 3, 6}), tp, {Shard(1)});
    const Tensor flat = distribute_tensor(numbers({3, 6}), tp, {Shard(0)});
    EXPECT_THAT(output_of(x, ColwiseParallel()), ElementsAre(Placement(Shard(2))));
    EXPECT_THAT(output_of(flat, ColwiseParallel()), ElementsAre(Placement(Shard(1))));
    EXPECT_THAT(output_of(x, ColwiseParallel{.output_layouts = Replicate()}), ElementsAre(Placement(Replicate())));
    EXPECT_THAT(output_of(x, RowwiseParallel()), ElementsAre(Placement(Replicate())));
    EXPECT_THAT(output_of(flat, RowwiseParallel{.output_layouts = Shard(0)}), ElementsAre(Placement(Shard(0))));
    EXPECT_THAT(output_of(x, RowwiseParallel{.output_layouts = Shard(-2)}), ElementsAre(Placement(Shard(1))));
    EXPECT_THAT(output_of(x, SequenceParallel()), ElementsAre(Placement(Shard(1))));
  });
}

TEST(TensorParallelTest, AttentionOfLinearLayers) {
  const ParallelPlan plan = {
      {"w[qkv]", ColwiseParallel()},
      {"wo", RowwiseParallel()},
  };
  check([] { return Attention(8, 4); }, plan, numbers({2, 5, 8}), kForward);
}

TEST(TensorParallelTest, EmbeddingsByRowsAndByColumns) {
  const Tensor ids = torch::arange(12).mul(7).remainder(10).view({4, 3});
  check([] { return nn::Embedding(10, 6); }, {{"", RowwiseParallel()}}, ids, kForward);
  check([] { return nn::Embedding(10, 6); }, {{"", ColwiseParallel()}}, ids, kForward);
  check([] { return nn::Embedding(10, 5); }, {{"", RowwiseParallel{.output_layouts = Shard(1)}}}, ids, kForward);
  check([] { return nn::Embedding(10, 5); }, {{"", ColwiseParallel{.output_layouts = Replicate()}}}, ids, kForward);
}

TEST(TensorParallelTest, Norms) {
  check([] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, {{"", SequenceParallel()}}, numbers({2, 5, 6}),
        kForward);
  check([] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, {{"", SequenceParallel{.sequence_dim = 0}}},
        numbers({5, 6}), kForward);
  check([] { return nn::GroupNorm(3, 6); }, {{"", SequenceParallel{.sequence_dim = 2}}}, numbers({2, 6, 5}), kForward);
  check([] { return nn::BatchNorm1d(4); }, {{"", SequenceParallel{.sequence_dim = 0}}}, numbers({5, 4}), kForward);
  check([] { return nn::BatchNorm2d(3); }, {{"", SequenceParallel{.sequence_dim = -1}}}, numbers({2, 3, 5, 4}),
        kForward);
}

// Activations between the layers are cut along the sequence.
TEST(TensorParallelTest, LanguageModelWithSequenceParallel) {
  const ParallelPlan plan = {
      {"tokens", RowwiseParallel{.output_layouts = Shard(1)}},
      {"norm?", SequenceParallel()},
      {"attention.w[qkv]", ColwiseParallel()},
      {"attention.wo", RowwiseParallel{.output_layouts = Shard(1)}},
      {"mlp.fc1", ColwiseParallel()},
      {"*.fc2", RowwiseParallel{.output_layouts = Shard(1)}},
      {"head", ColwiseParallel{.output_layouts = Replicate()}},
  };
  const Tensor ids = torch::arange(10).mul(7).remainder(10).view({2, 5});
  for (const bool tied : {false, true}) check([&] { return Model(tied); }, plan, ids, kForward);
}

TEST(TensorParallelTest, MultiheadAttention) {
  const auto self = [](auto& module, const Tensor& x) { return std::get<0>(module->forward(x, x, x)); };
  const auto cross = [](auto& module, const Tensor& x) {
    const Tensor memory = x.narrow(0, 0, 3) * 2;
    return std::get<0>(module->forward(x, memory, memory));
  };
  const auto make = [] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 4)); };
  check(make, {{"", AttentionParallel()}}, numbers({5, 2, 8}), self);
  check(make, {{"", AttentionParallel{.output_layouts = Shard(0)}}}, numbers({5, 2, 8}), self);
  check(make, {{"", AttentionParallel()}}, numbers({5, 2, 8}), cross);
  check([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 4).add_bias_kv(true).kdim(8).vdim(8)); },
        {{"", AttentionParallel()}}, numbers({5, 1, 8}), self);
}

TEST(TensorParallelTest, SeparateProjectionsOfAttention) {
  check([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6)); },
        {{"", AttentionParallel()}}, numbers({3, 2, 8}),
        [](auto& module, const Tensor& x) {
          return std::get<0>(module->forward(x, x.narrow(2, 0, 6), x.narrow(2, 2, 6)));
        });
}

TEST(TensorParallelTest, TransformerLayers) {
  for (const bool cut : {false, true}) {
    const ParallelPlan plan = transformer_layer_plan("", {.sequence_parallel = cut});
    check(
        [] {
          return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 4).dim_feedforward(12).dropout(0));
        },
        plan, numbers({4, 2, 8}), kForward);
    check(
        [] {
          return nn::TransformerDecoderLayer(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12).dropout(0));
        },
        plan, numbers({4, 2, 8}),
        [](auto& module, const Tensor& x) { return module->forward(x, x.narrow(0, 1, 3) * 0.5); });
  }
}

TEST(TensorParallelTest, TransformerOfSeveralLayers) {
  check(
      [] {
        const auto layer =
            nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 4).dim_feedforward(12).dropout(0));
        return nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 2));
      },
      transformer_layer_plan("layers.*", {.sequence_parallel = true}), numbers({4, 2, 8}), kForward);
}

// Names of the collectives of a call, in their order, on one rank of two.
template <class Body>
std::vector<std::string> collectives_of(const Body& body) {
  std::vector<std::string> names;
  spawn(2, [&](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const std::function<void()> run = body(tp);
    CommRecorder recorder;
    run();
    if (world.rank() != 0) return;
    for (const CollectiveCall& call : recorder.calls()) names.push_back(call.name);
  });
  return names;
}

// A forward of `module` on a replicated input.
template <class Module>
std::vector<std::string> forward_moves(const std::function<Module()>& make, const ParallelPlan& plan, const Tensor& x,
                                       const Placement& placement = Replicate()) {
  return collectives_of([&](const DeviceMesh& tp) -> std::function<void()> {
    auto module = made(make);
    parallelize_module(*module, tp, plan);
    const Tensor input = distribute_tensor(x, tp, {placement});
    return [module, input]() mutable { module->forward(input); };
  });
}

TEST(TensorParallelTest, AnMlpMovesOneSum) {
  const std::function<Mlp()> make = [] { return Mlp(6); };
  EXPECT_THAT(forward_moves(make, mlp_plan(), numbers({4, 6})), ElementsAre("all_reduce"));
  EXPECT_THAT(forward_moves(make, mlp_plan(), numbers({2, 4, 6})), ElementsAre("all_reduce"));
  const ParallelPlan cut = {{"fc1", ColwiseParallel()}, {"fc2", RowwiseParallel{.output_layouts = Shard(1)}}};
  EXPECT_THAT(forward_moves(make, cut, numbers({2, 4, 6}), Shard(1)), ElementsAre("all_gather", "reduce_scatter"));
}

TEST(TensorParallelTest, AttentionMovesOneSum) {
  const std::function<Attention()> make = [] { return Attention(8, 4); };
  EXPECT_THAT(forward_moves(make, {{"w[qkv]", ColwiseParallel()}, {"wo", RowwiseParallel()}}, numbers({2, 4, 8})),
              ElementsAre("all_reduce"));
}

TEST(TensorParallelTest, MultiheadAttentionMovesOneSum) {
  const auto names = collectives_of([&](const DeviceMesh& tp) -> std::function<void()> {
    auto module = made([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 4)); });
    parallelize_module(*module, tp, AttentionParallel());
    const Tensor x = distribute_tensor(numbers({4, 3, 8}), tp, {Replicate()});
    return [module, x]() mutable { module->forward(x, x, x); };
  });
  EXPECT_THAT(names, ElementsAre("all_reduce"));
}

TEST(TensorParallelTest, BackwardOfMultiheadAttentionMovesOneSum) {
  const auto names = collectives_of([&](const DeviceMesh& tp) -> std::function<void()> {
    auto module = made([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 4)); });
    parallelize_module(*module, tp, AttentionParallel());
    const Tensor x = distribute_tensor(numbers({4, 3, 8}), tp, {Replicate()}).requires_grad_(true);
    const Tensor loss = std::get<0>(module->forward(x, x, x)).sum();
    return [module, loss] { loss.backward(); };
  });
  EXPECT_THAT(names, ElementsAre("all_reduce"));
}

TEST(TensorParallelTest, BackwardOfAnMlpMovesOneSum) {
  const auto names = collectives_of([&](const DeviceMesh& tp) -> std::function<void()> {
    auto module = made([] { return Mlp(6); });
    parallelize_module(*module, tp, mlp_plan());
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Replicate()}).requires_grad_(true);
    const Tensor loss = module->forward(x).sum();
    return [module, loss] { loss.backward(); };
  });
  EXPECT_THAT(names, ElementsAre("all_reduce"));
}

// Calls of children and of the whole, in either order.
TEST(TensorParallelTest, ChildrenFirstOrLast) {
  const Tensor ids = torch::arange(10).mul(7).remainder(10).view({2, 5});
  auto dense = made([] { return Model(false); });
  const Trained expected = train(*dense, [&] { return dense->forward(ids); });
  const ParallelPlan outer = {{"tokens", RowwiseParallel()}, {"head", ColwiseParallel{.output_layouts = Replicate()}}};
  spawn(2, [&](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    for (const bool first : {true, false}) {
      auto module = made([] { return Model(false); });
      if (first) parallelize_module(module->mlp, tp, mlp_plan());
      parallelize_module(module, tp, outer);
      if (!first) parallelize_module(module->mlp, tp, mlp_plan());
      EXPECT_EQ(to_string(module->mlp->fc1->weight), "f64[16@tp, 8] on [tp=2]");
      EXPECT_EQ(to_string(module->attention->wq->weight), "f64[8, 8] on [tp=2]");
      expect_alike(train(*module, [&] { return module->forward(ids); }), expected, first ? "first" : "last");
    }
  });
}

TEST(TensorParallelTest, GradientsOfPlainInputsArePlainAndWhole) {
  auto dense = made([] { return Mlp(6); });
  const Tensor x = numbers({4, 6}).requires_grad_(true);
  dense->forward(x).sum().backward();
  spawn(3, [&](World&) {
    auto module = made([] { return Mlp(6); });
    parallelize_module(module, init_device_mesh("cpu", {3}, {"tp"}), mlp_plan());
    const Tensor mine = numbers({4, 6}).requires_grad_(true);
    module->forward(mine).sum().backward();
    EXPECT_FALSE(is_dtensor(mine.grad()));
    expect_close(mine.grad(), x.grad(), "gradient");
  });
}

// Each rank brings its part of a plain input.
TEST(TensorParallelTest, LayoutsOfPlainInputs) {
  auto dense = made([] { return nn::Linear(6, 4); });
  const Tensor x = numbers({2, 5, 6});
  const Tensor expected = dense->forward(x);
  spawn(2, [&](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const auto output = [&](const Tensor& part, const ParallelStyle& style) {
      auto linear = made([] { return nn::Linear(6, 4); });
      parallelize_module(linear, tp, style);
      return linear->forward(part);
    };
    expect_close(output(x.chunk(2, 2)[static_cast<size_t>(world.rank())], RowwiseParallel{.input_layouts = Shard(-1)}),
                 expected, "columns");
    expect_close(output(x.chunk(2, 1)[static_cast<size_t>(world.rank())], ColwiseParallel{.input_layouts = Shard(1)}),
                 expected, "rows");
  });
}

// The style is above autocast: what is moved is what the style says, in whatever type the product is made.
TEST(TensorParallelTest, Autocast) {
  auto dense = made([] { return Mlp(6); });
  const Tensor expected = dense->forward(numbers({4, 6}));
  const auto names = collectives_of([&](const DeviceMesh& tp) -> std::function<void()> {
    auto module = made([] { return Mlp(6); });
    module->to(torch::kFloat);
    parallelize_module(module, tp, mlp_plan());
    return [&, module, tp]() mutable {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const Tensor output = module->forward(
          distribute_tensor(numbers({4, 6}).to(torch::kFloat), tp, {Replicate()}, {.source = std::nullopt}));
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      EXPECT_EQ(to_string(output), "bf16[4, 6] on [tp=2]");
      expect_close(to_local(output).to(torch::kDouble), expected, "output", 0.05);
    };
  });
  EXPECT_THAT(names, ElementsAre("all_reduce"));
}

TEST(TensorParallelTest, InferenceModeKeepsTheStyle) {
  auto dense = made([] { return Mlp(6); });
  const Tensor expected = dense->forward(numbers({4, 6}));
  spawn(2, [&](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    auto module = made([] { return Mlp(6); });
    parallelize_module(module, tp, mlp_plan());
    const c10::InferenceMode inference;
    const Tensor output = module->forward(numbers({4, 6}));
    EXPECT_EQ(to_string(output), "f64[4, 6] on [tp=2]");
    expect_close(output, expected, "output");
  });
}

// A sum over a cut dim is a Partial. A loss may be one: reading it reduces it, and its gradient is one.
TEST(TensorParallelTest, ALossMayBePartial) {
  auto dense = made([] { return nn::Linear(6, 4); });
  const Tensor loss = dense->forward(numbers({3, 6})).square().sum();
  loss.backward();
  spawn(2, [&](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    auto linear = made([] { return nn::Linear(6, 4); });
    parallelize_module(linear, tp, ColwiseParallel());
    const Tensor partial = linear->forward(numbers({3, 6})).square().sum();
    EXPECT_EQ(to_string(placements_of(partial)), "(P(sum))");
    partial.backward();
    EXPECT_NEAR(partial.item<double>(), loss.item<double>(), 1e-10);
    expect_close(linear->weight.grad(), dense->weight.grad(), "gradient");
  });
}

TEST(TensorParallelTest, OnlyTheAxisOfTheStyleIsTouched) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor x = numbers({4, 5, 6});
    const Tensor batch = distribute_tensor(x, mesh, {Shard(0), Replicate()});
    const Tensor cut = detail::bring("test", batch, mesh["tp"], Shard(-2));
    EXPECT_EQ(to_string(cut), "f64[4@dp, 5@tp, 6] on [dp=2, tp=2]");
    expect_close(cut, x, "values");
    EXPECT_EQ(detail::axis_in(mesh, mesh["tp"]), 1U);
    EXPECT_EQ(detail::axis_in(mesh["dp"], mesh["tp"]), std::nullopt);
    EXPECT_EQ(to_string(detail::bring("test", distribute_tensor(x, mesh["dp"], {Shard(0)}), mesh["tp"], Shard(1))),
              to_string(distribute_tensor(x, mesh["dp"], {Shard(0)})));
  });
}

}  // namespace
}  // namespace sherd::testing
