// A function that is computed again in backward has the gradients of one that is not, with the same dropout masks.

#include "sherd/recompute.h"

#include <ATen/autocast_mode.h>

#include "error/rank_errors.h"
#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;

// Two layers with dropout; `how` calls each of them, plainly or through recompute.
template <class How>
Tensor forward(const torch::nn::Sequential& model, const Tensor& x, const How& how) {
  const auto block = [model](const Tensor& t) { return torch::dropout(output_of(model, t), 0.3, true); };
  const Tensor once = how(block, x);
  return how([](const Tensor& a, const Tensor& b) { return torch::dropout(a, 0.5, true) * b.sin(); }, once, once);
}

const auto kPlainly = [](const auto& fn, const auto&... inputs) { return fn(inputs...); };
const auto kRecomputed = [](const auto& fn, const auto&... inputs) { return recompute(fn, inputs...); };

TEST(RecomputeTest, DTensorsHaveTheSameGradients) {
  const Tensor batch = numbers({5, 5}, 3);
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    struct Result {
      Tensor output;
      Tensor gradient;
      std::vector<Tensor> gradients;
      uint64_t draws = 0;
    };
    const auto run = [&](const auto& how) {
      manual_seed(11);
      const auto model = make_mlp(mesh, placed_as);
      const Tensor x = distribute_batch(batch, mesh, placed_as).requires_grad_();
      const Tensor y = forward(model, x, how);
      const uint64_t draws = default_generator().offset();
      y.pow(2).sum().backward();
      EXPECT_EQ(default_generator().offset(), draws) << "backward leaves the generator where it was";
      return Result{full_tensor(y.detach()), x.grad(), gradients_of(model), draws};
    };
    const Result expected = run(kPlainly);
    const Result got = run(kRecomputed);
    EXPECT_EQ(got.draws, 2U);
    EXPECT_TRUE(got.output.equal(expected.output));
    expect_close(got.gradient, full_tensor(expected.gradient), "of the input");
    EXPECT_EQ(placements_of(got.gradient), placements_of(expected.gradient));
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      expect_close(got.gradients[i], full_tensor(expected.gradients[i]), "gradient " + std::to_string(i));
      EXPECT_EQ(placements_of(got.gradients[i]), placements_of(expected.gradients[i]));
    }
  });
}

TEST(RecomputeTest, PlainTensorsHaveTheSameGradients) {
  const auto run = [&](const auto& how) {
    torch::manual_seed(5);
    const auto model = make_mlp();
    const Tensor x = numbers({6, 5}).requires_grad_();
    forward(model, x, how).pow(2).sum().backward();
    std::vector<Tensor> results = gradients_of(model);
    results.push_back(x.grad());
    results.push_back(torch::rand({3}, torch::kDouble));  // what comes next is what would have come
    return results;
  };
  const auto expected = run(kPlainly);
  const auto got = run(kRecomputed);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
}

// A mesh with a generator of its own, and a scope that is gone when backward runs.
TEST(RecomputeTest, EveryGeneratorIsKept) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    manual_seed(mesh, 3);
    const Tensor x = ones({8, 4}, mesh, {Shard(0)}, torch::kDouble).requires_grad_();
    const auto drop = [](const Tensor& t) { return torch::dropout(t, 0.5, true); };
    const Tensor y = recompute(drop, x);
    drop(x);  // the generator goes on
    y.sum().backward();
    expect_close(x.grad(), full_tensor(y.detach()), "mask of the mesh");

    x.mutable_grad() = Tensor();
    Tensor scoped;
    {
      const GeneratorScope scope(Generator(77));
      scoped = recompute(drop, x);
    }
    scoped.sum().backward();
    expect_close(x.grad(), full_tensor(scoped.detach()), "mask of the scope");
    EXPECT_EQ(current_generator(mesh).offset(), 2U);

    // Seeded anew before backward.
    x.mutable_grad() = Tensor();
    const Tensor before = recompute(drop, x);
    manual_seed(mesh, 4);
    before.sum().backward();
    expect_close(x.grad(), full_tensor(before.detach()), "mask of the old seed");
    EXPECT_EQ(current_generator(mesh).seed(), 4U);
  });
}

// Ranks compare their generators once, not in every backward.
TEST(RecomputeTest, SecondRunsAskNothingOfOtherRanks) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    const Tensor x = ones({8, 4}, mesh, {Shard(0)}, torch::kDouble).requires_grad_();
    const auto drop = [](const Tensor& t) { return torch::dropout(t, 0.5, true).sin(); };
    drop(x);
    const CommRecorder recorder;
    recompute(drop, x).backward(ones({8, 4}, mesh, {Shard(0)}, torch::kDouble));
    EXPECT_EQ(recorder.calls().size(), 0U) << recorder.to_string();
  });
}

TEST(RecomputeTest, Nested) {
  const auto run = [&](const DeviceMesh& mesh, const Arrangement& placed_as, const auto& how) {
    manual_seed(2);
    const auto model = make_mlp(mesh, placed_as);
    const Tensor x = distribute_batch(numbers({5, 5}), mesh, placed_as).requires_grad_();
    const auto inner = [model](const Tensor& t) { return torch::dropout(output_of(model, t), 0.4, true); };
    const Tensor y = how([&](const Tensor& t) { return torch::dropout(how(inner, t).exp(), 0.4, true); }, x);
    y.sum().backward();
    std::vector<Tensor> results = gradients_of(model);
    results.push_back(x.grad());
    for (Tensor& result : results) result = full_tensor(result);
    return results;
  };
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    expect_all_close(run(mesh, placed_as, kRecomputed), run(mesh, placed_as, kPlainly), "gradient");
  });
}

TEST(RecomputeTest, SeveralInputsAndOutputs) {
  const Tensor x = numbers({4, 3}).requires_grad_();
  const Tensor index = torch::tensor({2, 0});  // no gradient, no floating point
  const Tensor unused = numbers({4, 3}, 5).requires_grad_();
  const auto fn = [](const Tensor& a, const Tensor& rows, const Tensor& b, double factor, const Tensor& none) {
    EXPECT_FALSE(none.defined());
    return std::tuple(a.index_select(0, rows) * factor, Tensor(), a.detach() + 1, b.size(0) + a.sum());
  };
  const auto [picked, undefined, detached, sum] = recompute(fn, x, index, unused, 2.5, Tensor());
  EXPECT_FALSE(undefined.defined());
  EXPECT_TRUE(detached.detach().equal(x.detach() + 1));
  EXPECT_TRUE(picked.equal(x.detach().index_select(0, index) * 2.5));
  (picked.sum() + sum).backward();
  Tensor expected = torch::ones({4, 3}, torch::kDouble);
  expected[0] += 2.5;
  expected[2] += 2.5;
  EXPECT_TRUE(x.grad().equal(expected));
  EXPECT_FALSE(unused.grad().defined());

  x.mutable_grad() = Tensor();
  const std::vector<Tensor> list = recompute([](const Tensor& a) { return std::vector<Tensor>{a * 2, a * 3}; }, x);
  list[1].sum().backward();  // of the first none comes back
  EXPECT_TRUE(x.grad().equal(torch::full({4, 3}, 3.0, torch::kDouble)));
}

TEST(RecomputeTest, ResultsThatAreInputsAndViewsOfThem) {
  const Tensor whole = numbers({4, 3});
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    for (const bool plain : {false, true}) {
      const Tensor leaf = (plain ? whole.clone() : distribute_tensor(whole, mesh, {Shard(0)})).requires_grad_();
      const Tensor x = leaf * 1;
      const auto [same, turned] = recompute([](const Tensor& a) { return std::pair(a, a.t()); }, x);
      (same.sum() + turned.pow(2).sum()).backward();
      expect_close(leaf.grad(), 1 + 2 * whole, "gradient");
    }
  });
}

// Parameters get their gradients where no input has one.
TEST(RecomputeTest, InputsThatNeedNoGradient) {
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto dense = make_mlp();
    output_of(dense, numbers({5, 5})).pow(2).sum().backward();
    const auto model = make_mlp(mesh, placed_as);
    recompute(model, distribute_batch(numbers({5, 5}), mesh, placed_as)).pow(2).sum().backward();
    expect_all_close(gradients_of(model), gradients_of(dense), "gradient");
  });
}

TEST(RecomputeTest, KeepsNothingWithoutGradients) {
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(recompute([](const Tensor& a) { return a * 2; }, numbers({3}).requires_grad_()).requires_grad());
}

// What fn makes on the way is gone before backward.
TEST(RecomputeTest, ForgetsWhatIsMadeOnTheWay) {
  c10::weak_intrusive_ptr<c10::TensorImpl> made{c10::intrusive_ptr<c10::TensorImpl>()};
  int runs = 0;
  const Tensor x = numbers({4}).requires_grad_();
  const Tensor y = recompute(
      [&](const Tensor& a) {
        ++runs;
        const Tensor middle = a.exp();
        made = c10::weak_intrusive_ptr<c10::TensorImpl>(middle.getIntrusivePtr());
        return middle * middle;
      },
      x);
  EXPECT_TRUE(made.expired());
  EXPECT_EQ(runs, 1);
  y.sum().backward();
  EXPECT_EQ(runs, 2);
  expect_close(x.grad(), 2 * (2 * x).exp(), "gradient");
}

TEST(RecomputeTest, WhatMayMoveIsWhatMightInTheFirstRun) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const auto make = [&](int64_t dim) { return distribute_tensor(torch::ones({4, 4}), mesh, {Shard(dim)}); };
    const Tensor rows = make(0).requires_grad_();
    const Tensor columns = make(1);
    const Tensor free = recompute([&](const Tensor& x) { return x + columns; }, rows);
    const Tensor held = [&] {
      const ExplicitRedistribution nothing_moves;
      return recompute(
          [&, first = true](const Tensor& x) mutable { return std::exchange(first, false) ? x * 2 : x * columns; },
          rows);
    }();
    {
      const ExplicitRedistribution nothing_moves;
      free.backward(make(0));
    }
    EXPECT_THROW(held.sum().backward(), c10::ValueError);
  });
}

TEST(RecomputeTest, AutocastAsInTheFirstRun) {
  const auto run = [&](const auto& how) {
    auto model = make_mlp();
    model->to(torch::kFloat);
    const Tensor x = numbers({6, 5}).to(torch::kFloat).requires_grad_();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const Tensor y = how([model](const Tensor& t) { return output_of(model, t); }, x);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    const Tensor loss = (y + output_of(model, x)).pow(2).sum();  // the same weights outside, cast in the same region
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    std::vector<Tensor> results = gradients_of(model);
    results.push_back(x.grad());
    return results;
  };
  const auto expected = run(kPlainly);
  const auto got = run(kRecomputed);
  expect_all_close(got, expected, "gradient", 0.05);
}

TEST(RecomputeTest, GradientsOfSomeTensorsAlone) {
  const Tensor x = numbers({3}).requires_grad_();
  const auto square = [](const Tensor& a) { return (a * a).sum(); };
  EXPECT_EQ(value_error([&] { torch::autograd::grad({recompute(square, x)}, {x}); }),
            "recompute: the gradients of some tensors alone were asked for\n"
            "  help: loss.backward(), which gives every parameter its gradient; recompute cannot serve "
            "torch::autograd::grad() or backward() with inputs");
  EXPECT_EQ(value_error([&] { recompute(square, x).backward({}, std::nullopt, true); }),
            "recompute: a gradient of the gradient was asked for\n"
            "  help: loss.backward() without create_graph, or call the function without recompute");
}

}  // namespace
}  // namespace sherd::testing
