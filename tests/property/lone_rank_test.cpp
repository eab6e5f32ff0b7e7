// What the dispatch does not do where it need not: reduce over one rank, prepare views for writes that are never
// recorded, copy what is only detached. Results are those of one device all the same.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  EXPECT_TRUE(torch::allclose(is_dtensor(got) ? full_tensor(got) : got, expected, 1e-10, 1e-10)) << what;
}

TEST(LoneRankTest, ASumOverOneRankIsWhole) {
  spawn(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1});
    const Tensor x = numbers({4, 6}), w = numbers({6, 3}, 1);
    const Tensor product = distribute_tensor(x, mesh, {Shard(1)}).mm(distribute_tensor(w, mesh, {Shard(0)}));
    EXPECT_EQ(placements_of(product), Placements{Replicate()});
    expect_close(product, x.mm(w), "mm");
    const Tensor sum = distribute_tensor(x, mesh, {Shard(0)}).sum();
    EXPECT_EQ(placements_of(sum), Placements{Replicate()});
    expect_close(sum.mul(2).exp(), x.sum().mul(2).exp(), "sum");
  });
}

TEST(LoneRankTest, OtherAxesOfTheMeshStayPartial) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 1}, {"dp", "lone"});
    const Tensor x = numbers({5, 6}), w = numbers({6, 3}, 1);
    const Tensor product =
        distribute_tensor(x, mesh, {Shard(1), Shard(1)}).mm(distribute_tensor(w, mesh, {Shard(0), Shard(0)}));
    EXPECT_EQ(placements_of(product), (Placements{Partial(), Replicate()}));
    expect_close(product, x.mm(w), "mm");
  });
}

// An operator in place keeps the placements of what it writes, those that a user gave it, too.
TEST(LoneRankTest, InPlaceAPartialStaysOne) {
  spawn(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1});
    Tensor sum = from_local(numbers({4}), mesh, {Partial()});
    sum.add_(from_local(numbers({4}, 1), mesh, {Partial()}));
    EXPECT_EQ(placements_of(sum), Placements{Partial()});
    expect_close(sum, numbers({4}) + numbers({4}, 1), "add_");
  });
}

TEST(LoneRankTest, GradientsOfTwoLeavesDoNotShareMemory) {
  spawn(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1});
    const Tensor a = distribute_tensor(numbers({4, 2}), mesh, {Shard(0)}).requires_grad_();
    const Tensor b = distribute_tensor(numbers({4, 2}, 1), mesh, {Shard(0)}).requires_grad_();
    (a + b).sum().backward();
    a.mutable_grad().mul_(5);
    expect_close(a.grad(), torch::full({4, 2}, 5, torch::kDouble), "a");
    expect_close(b.grad(), torch::ones({4, 2}, torch::kDouble), "b");
  });
}

TEST(LoneRankTest, DataParallelSendsAndCopiesNothing) {
  spawn(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"dp"});
    torch::nn::Linear alone(6, 3), layer(6, 3);
    alone->to(torch::kDouble);
    layer->to(torch::kDouble);
    {
      torch::NoGradGuard no_grad;
      layer->weight.copy_(alone->weight);
      layer->bias.copy_(alone->bias);
    }
    data_parallel(*layer, mesh);
    const Tensor x = numbers({5, 6});
    for (int pass = 0; pass < 2; ++pass) {  // the second is added to the first
      alone(x).pow(2).mean().backward();
      const CommRecorder recorder;
      layer(distribute_tensor(x, mesh, {Shard(0)}, {.source = std::nullopt})).pow(2).mean().backward();
      EXPECT_EQ(recorder.bytes(), 0);
      EXPECT_EQ(placements_of(layer->weight.grad()), Placements{Replicate()});
      expect_close(layer->weight.grad(), alone->weight.grad(), "weight");
      expect_close(layer->bias.grad(), alone->bias.grad(), "bias");
    }
  });
}

// On every mesh, with a view made while nothing is recorded before the one that counts.
TEST(LoneRankTest, WritesToViewsAreReplayedWhereTheyAreRecorded) {
  using View = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<std::string, View>> views = {
      {"view",
       [](const Tensor& t) {
         return t.view({2, 3, 4});
       }},
      {"transpose", [](const Tensor& t) { return t.transpose(0, 1); }},
      {"t", [](const Tensor& t) { return t.t(); }},
      {"rows", [](const Tensor& t) { return t.slice(0, 1, 4); }},
      {"row", [](const Tensor& t) { return t.select(0, 3); }},
      {"column", [](const Tensor& t) { return t.select(1, 2); }},
      {"view of a view", [](const Tensor& t) { return t.t().slice(0, 1, 3).unsqueeze(0); }},
      {"of one made before",
       [](const Tensor& t) {
         return t.permute({1, 0}).select(0, 1);
       }},
  };
  const auto run = [](const View& view, const Tensor& leaf) {
    {
      torch::NoGradGuard no_grad;
      leaf.t();
    }
    Tensor base = leaf * 2;
    const Tensor other = base.t();
    view(base).mul_(3);
    // The other view's history is made anew from the base's.
    (base.pow(2).sum() + other.pow(3).sum()).backward();
    return base.detach();
  };
  for (const int ranks : {1, 2, 3}) {
    spawn(ranks, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {ranks});
      for (const auto& [name, view] : views) {
        for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
          const Tensor plain = numbers({6, 4}).requires_grad_();
          const Tensor spread = distribute_tensor(numbers({6, 4}), mesh, {placement}).requires_grad_();
          const std::string what = name + " on " + std::to_string(ranks) + ", " + to_string(Placements{placement});
          expect_close(run(view, spread), run(view, plain), what);
          expect_close(spread.grad(), plain.grad(), what + ", gradient");
        }
      }
    });
  }
}

TEST(LoneRankTest, AViewMadeWithoutGradientsIsWrittenWithoutThem) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Tensor leaf = distribute_tensor(numbers({6, 4}), mesh, {Shard(0)}).requires_grad_();
    Tensor view;
    {
      torch::NoGradGuard no_grad;
      view = leaf.view({2, 3, 4});
      view.add_(1);
    }
    expect_close(leaf.detach(), numbers({6, 4}) + 1, "what was written");
    // As for every tensor.
    EXPECT_THROW(view.mul_(2), c10::Error);
    (leaf * 2).sum().backward();
    expect_close(leaf.grad(), torch::full({6, 4}, 2, torch::kDouble), "gradient");
  });
}

TEST(LoneRankTest, DetachedTensorsShareDataAndNothingElse) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Tensor leaf = distribute_tensor(numbers({5, 4}), mesh, {Shard(0)}).requires_grad_();
    Tensor detached = leaf.detach();
    EXPECT_FALSE(detached.requires_grad());
    EXPECT_EQ(placements_of(detached), Placements{Shard(0)});
    detached.mul_(2);
    expect_close(leaf.detach(), numbers({5, 4}) * 2, "written through");
    detached.unsqueeze_(0);
    EXPECT_EQ(leaf.sizes(), (std::vector<int64_t>{5, 4}));
    EXPECT_EQ(to_local(leaf.detach()).dim(), 2);
    expect_close(detached, numbers({5, 4}).mul(2).unsqueeze(0), "its shape is its own");
    to_local(leaf.detach()).unsqueeze_(0);
    to_local(leaf.detach()).requires_grad_();
    EXPECT_FALSE(to_local(leaf.detach()).requires_grad());
    EXPECT_EQ(to_local(leaf.detach()).dim(), 2);
  });
}

TEST(LoneRankTest, DetachedTensorsInInferenceMode) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Tensor x = distribute_tensor(numbers({5, 4}), mesh, {Shard(0)});
    const c10::InferenceMode inference;
    for (int i = 0; i < 2; ++i) {  // the second time from the cache
      EXPECT_FALSE(x.detach().is_inference());
      EXPECT_FALSE(x.t().is_inference());
      const Tensor made = x + 1;
      EXPECT_TRUE(made.is_inference());
      EXPECT_TRUE(made.t().is_inference());
      EXPECT_FALSE(made.key_set().has(c10::DispatchKey::AutogradPrivateUse2));
    }
  });
}

}  // namespace
}  // namespace sherd::testing
