// What a DTensor promises beside the operators: its edges, its gradients, its leaves, ranks outside its mesh.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error/rank_errors.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kDouble).remainder(7).sub(3).view(shape);
}

// Runs the body on the ranks of a mesh of that shape.
void on_mesh(std::vector<int64_t> shape, const std::function<void(const DeviceMesh&)>& body) {
  spawn(static_cast<int>(c10::multiply_integers(shape)), [&](World&) {
    const std::vector<std::string> names{"a", "b", "c"};
    body(init_device_mesh("cpu", shape, {names.begin(), names.begin() + static_cast<int64_t>(shape.size())}));
  });
}

TEST(DistributeTest, TheSourceAloneCountsAndNobodyGetsMoreThanItKeeps) {
  const std::vector<Placements> all = {
      {Replicate(), Shard(0), Replicate()},        {Shard(1), Replicate(), Shard(0)},
      {Shard(0), Shard(0), Replicate()},           {Replicate(), Replicate(), Replicate()},
      {Replicate(), StridedShard(0, 2), Shard(0)}, {Replicate(), Partial(), Shard(1)}};
  for (const Placements& placements : all) {
    for (const int source : {0, 1}) {
      on_mesh({2, 2, 2}, [&](const DeviceMesh& mesh) {
        const Tensor whole = numbers({7, 6});
        const Dims& here = *mesh.coordinate();
        const bool is_source = here == Dims(3, source);
        // A tensor of that size without the memory: the others need no more.
        const Tensor mine = is_source ? whole : torch::full({}, -99, torch::kDouble).expand({7, 6});
        const CommRecorder recorder;
        const Tensor result = distribute_tensor(mine, mesh, placements, {.source = source});
        EXPECT_TRUE(full_tensor(result.clone()).equal(whole)) << to_string(result) << " from " << source;
        if (placements == all[0]) {
          int64_t bytes = 0;
          for (const CollectiveCall& call : recorder.calls()) {
            if (call.name == "scatter" || call.name == "broadcast") bytes += call.bytes;
          }
          EXPECT_EQ(bytes, is_source ? 0 : to_local(result).numel() * 8);
        }
      });
    }
  }
}

TEST(DistributeTest, AParameterIsReplacedForEveryHandle) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    torch::nn::Linear linear(3, 4);
    linear->to(torch::kDouble);
    const Tensor handle = linear->weight;
    torch::optim::SGD optimizer(linear->parameters(), 0.5);
    const Tensor before = numbers({4, 3});
    linear->weight.set_data(before.clone());
    distribute_parameter_(linear->weight, mesh, {Shard(0)});
    EXPECT_EQ(to_string(handle), "f64[4@a, 3] on [a=2]");
    EXPECT_TRUE(handle.is_leaf() && handle.requires_grad());
    handle.sum().backward();
    optimizer.step();
    EXPECT_TRUE(full_tensor(linear->weight.detach()).equal(before - 0.5));
  });
}

TEST(FromLocalTest, UnevenPartsAreFound) {
  on_mesh({3}, [](const DeviceMesh& mesh) {
    const int64_t rank = mesh.coordinate()->at(0);
    const Tensor whole = numbers({5, 2});
    const std::vector<int64_t> chunks{2, 2, 1};
    const Tensor chunked = from_local(whole.narrow(0, 2 * rank, chunks[static_cast<size_t>(rank)]), mesh, {Shard(0)});
    EXPECT_EQ(to_string(chunked), "f64[5@a, 2] on [a=3]");
    EXPECT_TRUE(full_tensor(chunked).equal(whole));
    const std::vector<int64_t> begins{0, 1, 4};
    const std::vector<int64_t> rows{1, 3, 1};
    const auto at = static_cast<size_t>(rank);
    const Tensor ragged = from_local(whole.narrow(0, begins[at], rows[at]), mesh, {Shard(0)});
    EXPECT_TRUE(full_tensor(ragged).equal(whole));
    EXPECT_EQ(placements_of(ragged), Placements{Ragged(0, {0, 1, 4, 5})});
  });
}

TEST(FromLocalTest, GradientsComeBackToTheLocalTensor) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const double rank = static_cast<double>(mesh.coordinate()->at(0));
    const Tensor local = torch::full({2, 2}, rank + 1, torch::kDouble).requires_grad_();
    const Tensor x = from_local(local, mesh, {Shard(0)});
    (x * numbers({4, 2})).sum().backward();
    EXPECT_TRUE(local.grad().equal(numbers({4, 2}).narrow(0, 2 * mesh.coordinate()->at(0), 2)));
  });
}

// What the gradient of a part means is the program's to say.
TEST(FromLocalTest, GradientsHaveThePlacementsThatWereAskedFor) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor part = numbers({2, 3}).requires_grad_();
    const Tensor rows = distribute_tensor(numbers({2, 3}), mesh, {Shard(0)});
    // Asked for as parts of a sum, the gradients of all ranks together are the gradient.
    const Tensor own = from_local(part, mesh, {Replicate()}, {.grad_placements = Placements{Partial()}});
    (own * rows).sum().backward();
    EXPECT_TRUE(full_tensor(from_local(part.grad(), mesh, {Partial()})).equal(numbers({2, 3}))) << part.grad();
    // By default it is whole on every rank.
    const Tensor other = numbers({2, 3}).requires_grad_();
    (from_local(other, mesh, {Replicate()}) * rows).sum().backward();
    EXPECT_TRUE(other.grad().equal(numbers({2, 3}))) << other.grad();
  });
}

TEST(FromLocalTest, StridesAreThoseThatWereGiven) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({3, 4}).t().contiguous().t();  // columns one after the other
    const Tensor part = x.narrow(1, mesh.world().rank() * 2, 2);
    const Tensor d = from_local(part, mesh, {Shard(1)}, {.shape = Dims{3, 4}, .stride = Dims{1, 3}});
    EXPECT_EQ(d.strides(), (at::IntArrayRef{1, 3}));
    EXPECT_TRUE(full_tensor(d).equal(x));
    EXPECT_TRUE(full_tensor(d.t().reshape({12})).equal(x.t().reshape({12})));
  });
}

TEST(ToLocalTest, TheGradientOfThePartsIsReadAsItWasSaid) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor whole = distribute_tensor(numbers({2, 3}), mesh, {Replicate()}).requires_grad_();
    // Each rank's part of a sum, which together are the gradient.
    const double factor = mesh.world().rank() + 1;
    to_local(whole, Placements{Partial()}).mul(factor).sum().backward();
    EXPECT_TRUE(full_tensor(whole.grad()).equal(torch::full({2, 3}, 3., torch::kDouble)));
  });
}

// On every rank, those whose own parts would fit too.
TEST(ToLocalTest, AGradientInOtherPartsIsAnError) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const auto refusal = [&](const Tensor& tensor, const Placement& placement) {
      return value_error([&] { to_local(tensor, Placements{placement}); });
    };
    const std::string problem = "to_local: the gradient's parts would be others than the tensor's\n";
    const std::string help = "  help: Partial() or Replicate() where the tensor is not cut, its own Shard where it is";
    const Tensor whole = distribute_tensor(numbers({4}), mesh, {Replicate()}).requires_grad_();
    EXPECT_EQ(refusal(whole, Shard(0)), problem + "  tensor: f64[4] on [a=2]\n  grad_placements: (S(0))\n" + help);
    const Tensor one = distribute_tensor(numbers({1}), mesh, {Shard(0)});
    EXPECT_EQ(refusal(one, Partial()), problem + "  tensor: f64[1@a] on [a=2]\n  grad_placements: (P(sum))\n" + help);
    const Tensor square = distribute_tensor(numbers({4, 4}), mesh, {Shard(0)});
    EXPECT_EQ(refusal(square, Shard(1)),
              problem + "  tensor: f64[4@a, 4] on [a=2]\n  grad_placements: (S(1))\n" + help);
    // As they are, or as an axis of one rank does not cut them.
    EXPECT_EQ(to_local(square, Placements{Shard(0)}).size(0), 2);
    EXPECT_EQ(to_local(from_local(numbers({4}), mesh, {Partial()}), Placements{Partial()}).size(0), 4);
  });
  // Parts of the same shape may be other rows.
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    const Tensor square = distribute_tensor(numbers({4, 4}), mesh, {Shard(0), Shard(1)});
    const std::string facts =
        ": the gradient's parts would be others than the tensor's\n  tensor: f64[4@a, 4@b] on [a=2, b=2]\n"
        "  grad_placements: (S(1), S(0))\n"
        "  help: Partial() or Replicate() where the tensor is not cut, its own Shard where it is";
    const Placements turned{Shard(1), Shard(0)};
    EXPECT_EQ(value_error([&] { to_local(square, turned); }), "to_local" + facts);
    EXPECT_EQ(value_error([&] {
                from_local(numbers({2, 2}), mesh, {Shard(0), Shard(1)}, {.grad_placements = turned});
              }),
              "from_local" + facts);
  });
  on_mesh({2, 1}, [](const DeviceMesh& mesh) {
    const Tensor rows = distribute_tensor(numbers({4, 4}), mesh, {Shard(0), Replicate()}).requires_grad_();
    to_local(rows, Placements{Shard(0), Shard(1)}).mul(3).sum().backward();
    EXPECT_TRUE(full_tensor(rows.grad()).equal(torch::full({4, 4}, 3., torch::kDouble)));
  });
}

// As for every tensor: what backward needs is no longer there.
TEST(ToLocalTest, WhatWasMadeOfAPartSeesWritesToTheTensor) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor w = numbers({2, 3}).requires_grad_();
    using Read = std::function<Tensor(const Tensor&)>;
    const std::vector<Read> reads = {[](const Tensor& x) { return to_local(x); },
                                     [](const Tensor& x) { return to_local(x.detach()); },
                                     [](const Tensor& x) { return to_local(x.t()).t(); },
                                     [](const Tensor& x) { return to_local(x.slice(0, 0, 4)); }};
    using Write = std::function<void(Tensor)>;
    const std::vector<Write> writes = {[](Tensor x) { x.mul_(2); },
                                       [](Tensor x) { x.detach().mul_(2); },
                                       [](Tensor x) { x.view({12}).zero_(); },
                                       [](Tensor x) { x.t_().mul_(2); },
                                       [](Tensor x) { x.select(0, 3).fill_(1); },
                                       [](Tensor x) {
                                         x.copy_(torch::ones({4, 3}));
                                       },
                                       [](Tensor x) { at::_foreach_mul_(std::vector<Tensor>{x}, 2); },
                                       [](Tensor x) { x.uniform_(); }};
    for (int round = 0; round < 2; ++round) {  // the second time from the cache
      for (size_t i = 0; i < reads.size(); ++i) {
        for (size_t j = 0; j < writes.size(); ++j) {
          const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
          const Tensor before = (reads[i](x) * w).sum();
          before.backward({}, /*retain_graph=*/true);
          writes[j](x);
          EXPECT_THROW(before.backward(), c10::Error) << "read " << i << ", write " << j << ", round " << round;
        }
      }
    }
  });
}

TEST(ConstrainTest, MovesDTensorsAndLeavesOthersAlone) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor plain = numbers({4, 3});
    EXPECT_TRUE(constrain(plain, {Shard(0)}).is_same(plain));
    const Tensor rows = distribute_tensor(plain, mesh, {Shard(0)}).requires_grad_();
    const Tensor columns = constrain(rows, {Shard(1)});
    EXPECT_EQ(placements_of(columns), Placements{Shard(1)});
    (columns * columns).sum().backward();
    EXPECT_EQ(placements_of(rows.grad()), Placements{Shard(0)});
    EXPECT_TRUE(full_tensor(rows.grad()).equal(plain * 2));
  });
}

TEST(FromLocalTest, ACheckGivesReplicasTheDataOfTheFirst) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor local = torch::full({3}, mesh.coordinate()->at(0));
    EXPECT_TRUE(
        to_local(from_local(local, mesh, {Replicate()}, {.check = true})).equal(torch::zeros({3}, torch::kLong)));
  });
}

TEST(ToLocalTest, SharesMemoryWithTheTensor) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor x = zeros({4, 2}, mesh, {Shard(0)});
    to_local(x).fill_(1);
    EXPECT_EQ(x.sum().item<double>(), 8);
  });
}

TEST(GradientTest, ALeafsGradientHasTheLeafsPlacements) {
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    const Tensor w = distribute_tensor(numbers({4, 6}), mesh, {Shard(0), Replicate()}).requires_grad_();
    const Tensor x = distribute_tensor(numbers({3, 6}), mesh, {Replicate(), Shard(1)});
    for (int pass = 1; pass <= 2; ++pass) {
      torch::linear(x, w).square().sum().backward();
      EXPECT_EQ(placements_of(w.grad()), placements_of(w));
    }
    const Tensor dense = numbers({4, 6}).requires_grad_();
    (2 * torch::linear(numbers({3, 6}), dense).square().sum()).backward();
    EXPECT_TRUE(torch::allclose(full_tensor(w.grad()), dense.grad()));
  });
}

TEST(GradientTest, PartialsOfALeafAreReducedOnceWhateverUsesIt) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor w = distribute_tensor(numbers({3, 2}), mesh, {Replicate()}).requires_grad_();
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor y = distribute_tensor(numbers({6, 3}), mesh, {Shard(0)});
    const Tensor loss = to_local(x.mm(w)).sum() + to_local((y * 2).mm(w)).sum() + to_local(x.mm(w)).sum();
    const CommRecorder recorder;
    loss.backward();
    ASSERT_EQ(recorder.calls().size(), 1U);
    EXPECT_EQ(recorder.calls()[0].name, "all_reduce");
    const Tensor dense = numbers({3, 2}).requires_grad_();
    ((2 * numbers({4, 3}).mm(dense)).sum() + (2 * numbers({6, 3}).mm(dense)).sum()).backward();
    EXPECT_TRUE(full_tensor(w.grad()).equal(dense.grad()));
  });
}

// A plain tensor counts as the same on every rank, and so does its gradient.
TEST(GradientTest, APlainTensorsGradientIsPlainAndWhole) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const auto gradients = [](const Tensor& x, const std::function<Tensor(const Tensor&, const Tensor&)>& loss) {
      const Tensor w = numbers({3, 2}).requires_grad_();
      loss(x, w).backward();
      return w.grad();
    };
    const Tensor x = numbers({4, 3});
    const std::function<Tensor(const Tensor&, const Tensor&)> losses[] = {
        [](const Tensor& a, const Tensor& w) { return a.mm(w).sum(); },
        [](const Tensor& a, const Tensor& w) { return at::linear(a, w.t()).square().sum(); },
        [](const Tensor& a, const Tensor& w) { return (a.mm(w * 2).sum() + a.mm(w).square().sum() + w.sum()); },
        [](const Tensor& a, const Tensor& w) {
          return at::_foreach_mul(std::vector<Tensor>{a.slice(0, 0, 3)}, std::vector<Tensor>{w.t().square()[0]})[0]
              .sum();
        },
        [](const Tensor& a, const Tensor& w) { return at::mse_loss(w, a.t().slice(1, 0, 2)); },
        [](const Tensor& a, const Tensor& w) {
          return at::embedding(w, a[0].abs().to(torch::kLong).remainder(3)).sum();
        },
    };
    for (const auto& loss : losses) {
      const Tensor right = gradients(x, loss);
      for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
        const Tensor got = gradients(distribute_tensor(x, mesh, {placement}), loss);
        EXPECT_FALSE(is_dtensor(got)) << to_string(placement);
        EXPECT_TRUE(torch::allclose(is_dtensor(got) ? full_tensor(got) : got, right)) << to_string(placement);
      }
    }
    // Nobody else's gradient lies where this one does.
    const Tensor plain = numbers({3}).requires_grad_();
    const Tensor leaf = distribute_tensor(numbers({3}), mesh, {Replicate()}).requires_grad_();
    (plain + leaf).backward(distribute_tensor(torch::ones({3}, torch::kDouble), mesh, {Replicate()}));
    leaf.grad().zero_();
    EXPECT_TRUE(plain.grad().equal(torch::ones({3}, torch::kDouble)));
    // Hooks of a program see it, and it can be differentiated again.
    Tensor seen;
    plain.mutable_grad().reset();
    plain.register_hook([&](const Tensor& grad) { seen = grad; });
    const Tensor rows = distribute_tensor(numbers({3}), mesh, {Shard(0)});
    const auto first = torch::autograd::grad({(plain * plain * plain * rows).sum()}, {plain}, {}, true, true)[0];
    EXPECT_FALSE(is_dtensor(seen));
    EXPECT_TRUE(first.equal(3 * plain * plain * numbers({3})));
    first.sum().backward();
    EXPECT_TRUE(plain.grad().equal(6 * plain * numbers({3})));
  });
}

TEST(GradientTest, ALeafWithOtherDataGetsGradientsAsTheyLie) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    Tensor p = distribute_tensor(numbers({4, 6}), mesh, {Shard(1)}).requires_grad_();
    (p * 2).sum().backward();
    p.mutable_grad() = Tensor();
    p.set_data(distribute_tensor(numbers({8}), mesh, {Shard(0)}));
    (p * 3).sum().backward();
    EXPECT_EQ(placements_of(p.grad()), Placements{Shard(0)});
    EXPECT_TRUE(full_tensor(p.grad()).equal(torch::full({8}, 3., torch::kDouble)));
  });
}

TEST(GradientTest, ALeafWithOtherDataAgainAndAgainKeepsOneHook) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    Tensor p = distribute_tensor(numbers({4}), mesh, {Shard(0)}).requires_grad_();
    for (int i = 0; i < 10; ++i) {
      p.set_data(distribute_tensor(numbers({4}), mesh, {i % 2 == 0 ? Placement(Replicate()) : Shard(0)}));
      p.mutable_grad() = Tensor();
      (p * distribute_tensor(numbers({4}), mesh, {Shard(0)})).sum().backward();
      EXPECT_EQ(placements_of(p.grad()), placements_of(p));
    }
    EXPECT_LE(torch::autograd::impl::get_autograd_meta(p)->cpp_hooks_list_->size(), 2U);
  });
}

// What Python does when the first hook of its own is registered.
struct PythonsHook final : torch::autograd::FunctionPreHook {
  explicit PythonsHook(std::function<Tensor(const Tensor&)> f) : call(std::move(f)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    return {call(grads[0])};
  }
  std::function<Tensor(const Tensor&)> call;
};

void register_as_python(const Tensor& tensor, std::function<Tensor(const Tensor&)> hook) {
  torch::autograd::impl::clear_hooks(tensor);
  torch::autograd::impl::add_hook(tensor, std::make_unique<PythonsHook>(std::move(hook)));
}

TEST(GradientTest, HooksOfPythonMayComeBetweenUseAndBackward) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor rows = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    using Use = std::function<Tensor(const Tensor&)>;
    const std::vector<Use> uses = {
        [&](const Tensor& x) { return (x * rows).sum(); },
        [&](const Tensor& x) { return (redistribute(x, {Shard(0)}) * rows).sum(); },
        [&](const Tensor& x) { return at::_foreach_mul(std::vector<Tensor>{x}, std::vector<Tensor>{rows})[0].sum(); },
    };
    for (size_t i = 0; i < uses.size(); ++i) {
      for (const bool is_plain : {false, true}) {
        for (const bool accumulates : {true, false}) {
          if (i == 1 && is_plain) continue;
          const Tensor whole = is_plain ? numbers({4, 3}) : distribute_tensor(numbers({4, 3}), mesh, {Replicate()});
          const Tensor x = whole.requires_grad_();
          const Tensor loss = uses[i](x);
          int calls = 0;
          register_as_python(x, [&](const Tensor& grad) {
            ++calls;
            return grad + (x * 0 + (x * rows) * 0);  // it may use the leaf itself
          });
          if (accumulates) loss.backward();
          const Tensor grad = accumulates ? x.grad() : torch::autograd::grad({loss}, {x})[0];
          EXPECT_EQ(calls, 1) << i;
          ASSERT_EQ(is_dtensor(grad), !is_plain) << i;
          if (!is_plain) {
            EXPECT_EQ(placements_of(grad), Placements{Replicate()}) << i;
          }
          EXPECT_TRUE((is_plain ? grad : full_tensor(grad)).equal(numbers({4, 3}))) << i;
        }
      }
    }
  });
}

TEST(GradientTest, ATensorThatBecomesALeafIsOne) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor rows = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor whole = distribute_tensor(numbers({4, 3}), mesh, {Replicate()}).requires_grad_();
    Tensor x = whole * 1;
    EXPECT_TRUE((x * 2).requires_grad());  // used while it is none
    x.detach_();
    x.requires_grad_();
    (x * rows).sum().backward();
    EXPECT_EQ(placements_of(x.grad()), Placements{Replicate()});
    EXPECT_TRUE(full_tensor(x.grad()).equal(numbers({4, 3})));
    // One that was used as a leaf before.
    x.requires_grad_(false);
    x.mul_(whole);
    x.detach_();
    x.requires_grad_();
    x.mutable_grad() = Tensor();
    (x * rows).sum().backward();
    EXPECT_EQ(placements_of(x.grad()), Placements{Replicate()});
  });
}

// Its gradients are cut as the second tensor is.
struct TimesRows : torch::autograd::Function<TimesRows> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& rows) {
    context->save_for_backward({rows});
    return x * rows;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {grads[0] * context->get_saved_variables()[0], Tensor()};
  }
};

// Nothing is recorded inside of it, and it may be all that uses the leaf.
TEST(GradientTest, ALeafOfAUsersFunctionGetsItsPlacements) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor rows = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor leaf = distribute_tensor(numbers({4, 3}), mesh, {Replicate()}).requires_grad_();
    {
      torch::NoGradGuard no_grad;
      EXPECT_FALSE((leaf * 2).requires_grad());
    }
    TimesRows::apply(leaf, rows).sum().backward();
    EXPECT_EQ(placements_of(leaf.grad()), Placements{Replicate()});
    EXPECT_TRUE(full_tensor(leaf.grad()).equal(numbers({4, 3})));
  });
}

TEST(GradientTest, RedistributionCanBeDifferentiatedThreeTimes) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const auto third = [](const Tensor& x, const std::function<Tensor(const Tensor&)>& move) {
      Tensor y = move(x).pow(4).sum();
      for (int i = 0; i < 3; ++i) y = torch::autograd::grad({y}, {x}, {}, true, true)[0].sum();
      return torch::autograd::grad({y}, {x})[0];
    };
    const Tensor dense = numbers({4, 3}).requires_grad_();
    const Tensor expected = third(dense, [](const Tensor& x) { return x; });
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}).requires_grad_();
    const Tensor got =
        third(x, [](const Tensor& y) { return redistribute(redistribute(y, {Shard(1)}), {Replicate()}); });
    EXPECT_TRUE(torch::allclose(full_tensor(got), expected));
  });
}

TEST(GradientTest, FullTensorAndToLocalCanBeDifferentiatedTwice) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}).requires_grad_();
    const Tensor once = torch::autograd::grad({full_tensor(x).pow(3).sum()}, {x}, {}, true, true)[0];
    const Tensor twice = torch::autograd::grad({once.sum()}, {x})[0];
    EXPECT_TRUE(torch::allclose(full_tensor(twice), 6 * numbers({4, 3})));
    const Tensor local = torch::autograd::grad({to_local(x).pow(2).sum()}, {x})[0];
    EXPECT_TRUE(torch::allclose(full_tensor(local), 2 * numbers({4, 3})));
  });
}

TEST(PartialTest, ValuesAreReadAndWrittenWhole) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const auto partial = [&] { return ones({4, 3}, mesh, {Shard(0)}).sum(0); };
    EXPECT_EQ(placements_of(partial()), Placements{Partial()});
    EXPECT_EQ(partial().sum().item<double>(), 12);
    EXPECT_TRUE(full_tensor(partial().fill_(2)).equal(torch::full({3}, 2.F)));
    EXPECT_TRUE(full_tensor(partial().zero_()).equal(torch::zeros({3})));
    EXPECT_TRUE(full_tensor(partial().copy_(torch::arange(3.))).equal(torch::arange(3.)));
    EXPECT_TRUE(full_tensor(partial() > 3).all().item<bool>());
    EXPECT_EQ(full_tensor((ones({4, 3}, mesh, {Shard(0)}) > 0).any(0).sum()).item<int64_t>(), 3);
  });
}

TEST(PartialTest, RoundingComesAfterSumming) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor half = torch::full({3}, 0.5, torch::kDouble);
    const Tensor one = from_local(half, mesh, {Partial()});
    EXPECT_TRUE(full_tensor(one.to(torch::kInt)).equal(torch::ones({3}, torch::kInt)));
    const Tensor threes = from_local(torch::full({1, 1, 2}, 3, torch::kLong), mesh, {Partial()});
    EXPECT_EQ(full_tensor(torch::avg_pool1d(threes, 2)).item<int64_t>(), 6);
  });
}

TEST(PartialTest, ARankWithoutRowsOfOneAxisAddsItsPartToAnother) {
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    const Tensor input = numbers({1, 1, 4});
    const Tensor weight = numbers({1, 1, 4}).add(1);
    const Tensor plain = torch::zeros({1}, torch::kDouble).requires_grad_();
    torch::conv_transpose1d(input, weight, plain).sum().backward();
    const Tensor bias = distribute_tensor(torch::zeros({1}, torch::kDouble), mesh, {Replicate(), Replicate()});
    bias.requires_grad_();
    torch::conv_transpose1d(distribute_tensor(input, mesh, {Shard(0), Replicate()}),
                            distribute_tensor(weight, mesh, {Replicate(), Shard(0)}), bias)
        .sum()
        .backward();
    EXPECT_TRUE(full_tensor(bias.grad()).allclose(plain.grad()));
    EXPECT_TRUE(to_local(bias.grad()).allclose(plain.grad()));
  });
}

TEST(DistributeTest, StridesAreTheSameOnEveryRank) {
  on_mesh({4}, [](const DeviceMesh& mesh) {
    const Tensor columns = numbers({3, 3}).t();
    EXPECT_EQ(distribute_tensor(columns, mesh, {Shard(0)}, {.source = std::nullopt}).strides(),
              at::IntArrayRef({1, 3}));
    EXPECT_EQ(distribute_tensor(columns, mesh, {Shard(0)}).strides(), at::IntArrayRef({3, 1}));
    const int64_t rows = mesh.coordinate()->at(0) < 3 ? 1 : 0;
    EXPECT_EQ(from_local(numbers({3, rows}).t(), mesh, {Shard(0)}).strides(), at::IntArrayRef({3, 1}));
  });
}

TEST(PlainTest, APlainOutGetsAllOfTheResult) {
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    const Tensor whole = numbers({5, 4});
    const Tensor x = distribute_tensor(whole, mesh, {Shard(0), Shard(1)});
    Tensor out = torch::empty({0}, torch::kDouble);
    torch::add_out(out, x, x);
    EXPECT_FALSE(is_dtensor(out));
    EXPECT_TRUE(out.equal(whole + whole));
    Tensor total = torch::empty({}, torch::kDouble);
    torch::sum_out(total, x, at::IntArrayRef{0, 1});
    EXPECT_TRUE(total.equal(whole.sum()));
  });
}

TEST(PlainTest, ANumberDoesNotDecideTheDtypeOfAPartial) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor count = distribute_tensor(torch::ones({4}), mesh, {Shard(0)}).sum();
    const Tensor less = torch::sub(count, 1.5);
    EXPECT_EQ(less.scalar_type(), torch::kFloat);
    EXPECT_EQ(full_tensor(less).item<float>(), 2.5F);
  });
}

TEST(PlainTest, OperandsWhoseNumbersAreReadMayBeDistributed) {
  on_mesh({3}, [](const DeviceMesh& mesh) {
    const Tensor whole = numbers({7, 2});
    const Tensor x = distribute_tensor(whole, mesh, {Shard(0)});
    const Tensor cuts = distribute_tensor(torch::tensor({2, 5}), mesh, {Shard(0)});
    const std::vector<Tensor> parts = torch::tensor_split(x, cuts);
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_TRUE(full_tensor(parts[1]).equal(whole.narrow(0, 2, 3)));
    const c10::InferenceMode inference;
    EXPECT_TRUE(full_tensor(torch::tensor_split(x, cuts)[2]).equal(whole.narrow(0, 5, 2)));
  });
}

TEST(PoolTest, OfOneDimWithoutGradients) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({3, 4, 7});
    for (const Placement& placement : Placements{Shard(0), Shard(1), Shard(2), Replicate()}) {
      const Tensor d = distribute_tensor(x, mesh, {placement});
      EXPECT_TRUE(full_tensor(at::max_pool1d(d, 3, 2, 1)).equal(at::max_pool1d(x, 3, 2, 1))) << to_string(placement);
      const c10::InferenceMode without_autograd;
      EXPECT_TRUE(full_tensor(at::max_pool1d(d, 2)).equal(at::max_pool1d(x, 2))) << to_string(placement);
    }
  });
}

TEST(OutsideTest, ARankOutsideTheMeshComputesNothing) {
  spawn(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}, {.source = std::nullopt}).requires_grad_();
    const Tensor y = (x.mm(numbers({3, 2})) + 1).relu();
    y.sum().backward();
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{4, 2}));
    EXPECT_EQ(to_local(x).numel(), world.rank() == 2 ? 0 : 6);
    if (world.rank() < 2) {
      EXPECT_TRUE(torch::allclose(full_tensor(y), (numbers({4, 3}).mm(numbers({3, 2})) + 1).relu()));
    }
  });
}

TEST(OutsideTest, AnOutIsResizedThereToo) {
  spawn(3, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}, {.source = std::nullopt});
    Tensor out = x.new_empty({0});
    at::matmul_out(out, x, x.t());
    EXPECT_EQ(out.sizes(), (at::IntArrayRef{4, 4}));
    Tensor kept = zeros({4, 3}, mesh, {Shard(1)}, torch::kDouble);
    at::mul_out(kept, x, x);
    EXPECT_EQ(placements_of(kept), Placements{Shard(1)});
    EXPECT_EQ((out + zeros({4, 4}, mesh, {Replicate()}, torch::kDouble)).sizes(), (at::IntArrayRef{4, 4}));
  });
}

TEST(OutsideTest, APlainTensorInAListStaysWhatItIsThere) {
  spawn(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const Tensor d = distribute_tensor(numbers({4, 3}), mesh, {Replicate()}, {.source = std::nullopt});
    const Tensor plain = numbers({4, 3});
    at::_foreach_add_(std::vector<Tensor>{plain}, std::vector<Tensor>{d});
    EXPECT_TRUE(plain.equal(numbers({4, 3}) * (world.rank() == 2 ? 1 : 2)));
  });
}

TEST(OutsideTest, WhatIsFoundThereIsNothing) {
  spawn(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const Tensor x = distribute_tensor(numbers({4, 3}).to(torch::kLong), mesh, {Shard(0)}, {.source = std::nullopt});
    const Tensor found = std::get<0>(at::_unique2(x, true, true, true));
    EXPECT_EQ(found.numel(), world.rank() == 2 ? 0 : 7);
  });
}

TEST(OutsideTest, GradientsHaveTheLeafsPlacements) {
  spawn(3, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}, {.source = std::nullopt}).requires_grad_();
    at::median(x).backward();
    EXPECT_EQ(placements_of(x.grad()), Placements{Shard(0)});
    x.mutable_grad() = Tensor();
    x.backward(torch::ones({4, 3}, torch::kDouble));
    EXPECT_EQ(to_local(x.grad()).numel(), to_local(x).numel());
  });
}

// The ranks outside call nothing at all, and nobody waits for them.
TEST(OutsideTest, NoCollectiveGoesBeyondTheMesh) {
  spawn(3,
        [](World& world) {
          if (world.rank() == 2) return;
          const DeviceMesh mesh("cpu", Mesh({{"a", 2}}, {0, 1}));
          const Tensor rows = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}).requires_grad_();
          const Tensor columns = redistribute(rows, {Shard(1)});
          const Tensor found = from_local(numbers({world.rank() + 1, 3}), mesh, {Shard(0)}, {.check = true});
          (columns.mm(columns.t()).softmax(0) + found.sum()).cumsum(0).mean().backward();
          EXPECT_EQ(full_tensor(rows.grad()).sizes(), (at::IntArrayRef{4, 3}));
          EXPECT_EQ(rows.argmax().item<int64_t>(), numbers({4, 3}).argmax().item<int64_t>());
        },
        {.timeout = std::chrono::seconds(20)});
}

TEST(DtypeTest, OperatorsKeepTheirDtypes) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    for (const auto dtype : {torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kComplexDouble}) {
      const Tensor dense = numbers({4, 3}).to(dtype);
      const Tensor x = distribute_tensor(dense, mesh, {Shard(0)});
      const auto check = [&](const Tensor& got, const Tensor& expected) {
        EXPECT_EQ(got.scalar_type(), expected.scalar_type());
        EXPECT_TRUE(torch::allclose(full_tensor(got), expected)) << dtype;
      };
      check(x + x, dense + dense);
      check(x.sum(0), dense.sum(0));
      check(x.t().mm(x), dense.t().mm(dense));
      check(x.slice(0, 1, 3), dense.slice(0, 1, 3));
      check(x.to(torch::kComplexFloat), dense.to(torch::kComplexFloat));
      if (dtype != torch::kComplexDouble) check(x.amax(0), dense.amax(0));
    }
    const Tensor z = distribute_tensor(torch::complex(numbers({4, 3}), numbers({4, 3}) * 2), mesh, {Shard(0)});
    EXPECT_TRUE(torch::allclose(at::imag(full_tensor(z.conj() * z)), torch::zeros({4, 3}, torch::kDouble)));
  });
}

TEST(RandomTest, ReplicasAgreeOnWhatIsDropped) {
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    const Tensor x = ones({8, 16}, mesh, {Shard(0), Replicate()});
    const Tensor local = to_local(torch::dropout(x, 0.5, true));
    EXPECT_TRUE(((local == 0) | (local == 2)).all().item<bool>());
    const Tensor seen = local.clone();
    broadcast(mesh.group("b"), seen, 0).wait();
    EXPECT_TRUE(seen.equal(local));
    EXPECT_GT((local == 0).sum().item<int64_t>(), 0);
  });
}

TEST(InferenceTest, ViewsAndWritesWorkWithoutVersionCounters) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const c10::InferenceMode inference;
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor row = x.select(0, 3);
    x.mul_(2);
    EXPECT_TRUE(full_tensor(row).equal(numbers({4, 3})[3] * 2));
    row.fill_(9);
    EXPECT_EQ(full_tensor(x)[3][0].item<double>(), 9);
  });
}

TEST(InferenceTest, ViewsOfOrdinaryTensorsAreOrdinary) {
  on_mesh({2}, [](const DeviceMesh& mesh) {
    const Tensor whole = numbers({4, 2});
    const Tensor x = distribute_tensor(whole, mesh, {Shard(0)});
    const c10::InferenceMode inference;
    for (const Tensor& view : {x.detach(), x.t(), x.view({-1}), x.slice(0, 1, 3), x.select(0, 3)}) {
      EXPECT_FALSE(view.is_inference());
    }
    EXPECT_TRUE((x * 2).is_inference());
    EXPECT_TRUE(full_tensor(x.t()).equal(whole.t()));
  });
}

TEST(OptimizerTest, EveryOptimizerStepsAsOnOneDevice) {
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>;
  const std::vector<Make> makers{
      [](auto p) { return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.1).momentum(0.9)); },
      [](auto p) { return std::make_unique<torch::optim::Adam>(p, torch::optim::AdamOptions(0.1).amsgrad(true)); },
      [](auto p) { return std::make_unique<torch::optim::AdamW>(p, torch::optim::AdamWOptions(0.1)); },
      [](auto p) { return std::make_unique<torch::optim::RMSprop>(p, torch::optim::RMSpropOptions(0.1)); },
      [](auto p) { return std::make_unique<torch::optim::Adagrad>(p, torch::optim::AdagradOptions(0.1)); }};
  on_mesh({2}, [&](const DeviceMesh& mesh) {
    for (const Make& make : makers) {
      const auto train = [&](const Tensor& w) {
        const auto optimizer = make({w});
        for (int i = 0; i < 3; ++i) {
          optimizer->zero_grad();
          torch::linear(numbers({5, 3}), w).square().mean().backward();
          torch::nn::utils::clip_grad_norm_({w}, 1.0);
          optimizer->step();
        }
        return w.detach();
      };
      const Tensor expected = train(numbers({4, 3}).requires_grad_());
      const Tensor got = train(distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}).requires_grad_());
      EXPECT_TRUE(torch::allclose(full_tensor(got), expected));
    }
  });
}

TEST(PrintTest, ShowsShapeMeshAndPlacements) {
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    EXPECT_EQ(to_string(zeros({8, 6}, mesh, {Shard(0), Shard(1)})), "f32[8@a, 6@b] on [a=2, b=2]");
    EXPECT_EQ(to_string(torch::zeros({8, 6})), "f32[8, 6]");
  });
}

TEST(FactoryTest, PartsAreThoseOfTheWhole) {
  on_mesh({3}, [](const DeviceMesh& mesh) {
    EXPECT_TRUE(full_tensor(arange(1, 11, 2, mesh, {Shard(0)})).equal(torch::arange(1, 11, 2)));
    EXPECT_TRUE(
        full_tensor(full({4, 2}, 3, mesh, {Shard(0)}, torch::kLong)).equal(torch::full({4, 2}, 3, torch::kLong)));
    const Tensor drawn = full_tensor(randn({64}, mesh, {Shard(0)}));
    EXPECT_GT(drawn.std().item<double>(), 0.5);
  });
}

}  // namespace
}  // namespace sherd::testing
