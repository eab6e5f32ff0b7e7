// A number depends on the seed, the draw and the place: the same bits for every mesh and placement, and those of a
// plain tensor that was given a generator in the same state.

#include "sherd/random.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "property/distribute_any.h"
#include "property/random_layout.h"
#include "property/random_operators.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"

namespace sherd::testing {
namespace {

using at::Tensor;

// What the operator gives for a plain tensor: the reference. Without a generator argument, plain dropout is torch's
// own, so that it is taken from a mesh of one rank.
Tensor reference(const Operator& op, const Tensor& x, bool given) {
  if (given) return op.draw(x, Generator(7));
  Tensor result;
  spawn(1, [&](World&) {
    const GeneratorScope scope(Generator(7));
    result = full_tensor(op.draw(distribute_tensor(x, init_device_mesh("cpu", {1}), {Replicate()}), {}));
  });
  return result;
}

std::string differences(const Operator& op, const Tensor& x, const Tensor& whole, const std::string& where) {
  const Generator g(7);
  const GeneratorScope scope(g);
  const Tensor drawn = full_tensor(op.draw(x, g));
  return same_bits(drawn, whole) ? ""
                                 : op.name + " of " + std::string(c10::toString(x.scalar_type())) + " " + where + "\n";
}

void check_everywhere(const std::vector<Operator>& list, bool given) {
  const Dims shape = {5, 7, 6};
  for (const Mesh& mesh_of_ranks : {Mesh({{"a", 2}}), Mesh({{"a", 3}}), Mesh({{"a", 2}, {"b", 2}}), Mesh({{"a", 8}})}) {
    std::vector<std::string> wrong(static_cast<size_t>(mesh_of_ranks.size()));
    std::vector<std::vector<Tensor>> wholes;
    for (const Operator& op : list) {
      wholes.emplace_back();
      for (const auto dtype : op.dtypes) wholes.back().push_back(reference(op, numbers_in_unit(shape, dtype), given));
    }
    spawn(static_cast<int>(mesh_of_ranks.size()), [&](World& world) {
      const DeviceMesh mesh("cpu", mesh_of_ranks);
      for (const Placements& placements : all_placements(mesh_of_ranks, 3, true)) {
        for (size_t i = 0; i < list.size(); ++i) {
          for (size_t d = 0; d < list[i].dtypes.size(); ++d) {
            const auto dtype = list[i].dtypes[d];
            if (d > 0 && placements != Placements(placements.size(), Shard(1))) continue;
            const Tensor x = numbers_in_unit(shape, dtype);
            Placements where = placements;
            if (dtype != at::kDouble) {  // the parts of a sum would be rounded
              for (Placement& p : where) {
                if (is_partial(p)) p = Replicate();
              }
            }
            wrong[static_cast<size_t>(world.rank())] +=
                differences(list[i], distribute_any(x, mesh, where), wholes[i][d], to_string(where));
          }
        }
      }
    });
    EXPECT_EQ(wrong, std::vector<std::string>(wrong.size())) << to_string(mesh_of_ranks);
  }
}

TEST(RandomTest, TheSameBitsOnEveryMeshAndPlacement) { check_everywhere(operators(), true); }

TEST(RandomTest, DropoutIsTheSameOnEveryMeshAndPlacement) { check_everywhere(operators_without_generator(), false); }

// Strided, ragged and uneven cuts, empty parts, ranks in any order, Partials.
TEST(RandomTest, TheSameBitsForAnyLayout) {
  constexpr int kRanks = 6;
  std::vector<std::string> wrong(kRanks);
  spawn(kRanks, [&](World& world) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      RandomLayout random(seed);
      const Dims shape = random.shape();
      Mesh ranks = random.mesh(kRanks);
      if (!ranks.has_default_ranks()) ranks = Mesh(ranks.axes());
      Placements placements = random.placements(ranks, shape);
      const DeviceMesh mesh("cpu", ranks);
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        Tensor x = empty(shape, mesh, placements, dtype);
        const Tensor whole = torch::empty(shape, dtype).normal_(0, 1, Generator(seed));
        // Products of parts, say, do not give back every bit: the draw is on what the tensor then is.
        bool sums = true;
        for (const Placement& p : placements) {
          const auto* partial = std::get_if<Partial>(&p);
          sums &= partial == nullptr || partial->op == ReduceOp::sum;
        }
        if (!sums) continue;
        x.normal_(0, 1, Generator(seed));
        const Tensor all = full_tensor(x);  // on every rank of the mesh
        if (mesh.coordinate() && !same_bits(all, whole)) {
          wrong[static_cast<size_t>(world.rank())] += "seed " + std::to_string(seed) + " " + to_string(x) + "\n";
        }
      }
    }
  });
  EXPECT_EQ(wrong, std::vector<std::string>(kRanks));
}

TEST(RandomTest, FactoriesDrawTheSameForEveryPlacement) {
  const Tensor uniform = torch::rand({6, 7}, at::Generator(Generator(3)), at::TensorOptions(at::kFloat));
  const Tensor normal = torch::randn({6, 7}, at::Generator(Generator(3)), at::TensorOptions(at::kDouble));
  const Tensor whole_numbers = torch::randint(-3, 9, {6, 7}, at::Generator(Generator(3)), at::TensorOptions(at::kLong));
  const Tensor small = torch::randperm(100, at::Generator(Generator(3)), at::TensorOptions(at::kLong));
  const Tensor large = torch::randperm(5000, at::Generator(Generator(3)), at::TensorOptions(at::kLong));
  EXPECT_TRUE(std::get<0>(small.sort()).equal(torch::arange(100)));
  EXPECT_TRUE(std::get<0>(large.sort()).equal(torch::arange(5000)));
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
    for (const Placements& p : all_placements(mesh.mesh(), 2, true)) {
      EXPECT_TRUE(same_bits(full_tensor(rand({6, 7}, mesh, p, at::kFloat, Generator(3))), uniform));
      EXPECT_TRUE(same_bits(full_tensor(randn({6, 7}, mesh, p, at::kDouble, Generator(3))), normal));
      EXPECT_TRUE(full_tensor(randint(-3, 9, {6, 7}, mesh, p, {}, Generator(3))).equal(whole_numbers));
    }
    for (const Placements& p : all_placements(mesh.mesh(), 1, false)) {
      EXPECT_TRUE(full_tensor(randperm(100, mesh, p, {}, Generator(3))).equal(small));
      EXPECT_TRUE(full_tensor(randperm(5000, mesh, p, {}, Generator(3))).equal(large));
    }
  });
}

TEST(RandomTest, MultinomialIsTheSameForEveryLayout) {
  const Tensor weights = numbers_in_unit({6, 40}, at::kFloat);
  const Tensor without = torch::multinomial(weights, 12, false, Generator(5));
  const Tensor with = torch::multinomial(weights, 60, true, Generator(5));
  const Tensor row = torch::multinomial(weights[0], 7, false, Generator(5));
  for (int64_t i = 0; i < 6; ++i) {
    const auto* data = without[i].const_data_ptr<int64_t>();
    EXPECT_EQ(std::set<int64_t>(data, data + 12).size(), 12) << "drawn twice";
  }
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
    for (const Placements& p : all_placements(mesh.mesh(), 2, false)) {
      const Tensor x = distribute_tensor(weights, mesh, p);
      EXPECT_TRUE(full_tensor(torch::multinomial(x, 12, false, Generator(5))).equal(without)) << to_string(p);
      EXPECT_TRUE(full_tensor(torch::multinomial(x, 60, true, Generator(5))).equal(with)) << to_string(p);
    }
    for (const Placements& p : all_placements(mesh.mesh(), 1, false)) {
      const Tensor x = distribute_tensor(weights[0].contiguous(), mesh, p);
      EXPECT_TRUE(full_tensor(torch::multinomial(x, 7, false, Generator(5))).equal(row)) << to_string(p);
    }
  });
}

TEST(RandomTest, OutArgumentsAreFilled) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Tensor p = distribute_tensor(numbers_in_unit({6, 5}, at::kFloat), mesh, {Shard(0)});
    Tensor out = empty({6, 5}, mesh, {Shard(1)}, at::kFloat);
    torch::bernoulli_out(out, p, Generator(5));
    EXPECT_TRUE(full_tensor(out).equal(full_tensor(torch::bernoulli(p, Generator(5)))));
    torch::poisson_out(out, p, Generator(5));
    EXPECT_TRUE(full_tensor(out).equal(full_tensor(torch::poisson(p, Generator(5)))));
  });
}

TEST(RandomTest, EveryDrawIsAnother) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    manual_seed(1);
    const Tensor a = rand({100}, mesh, {Shard(0)});
    const Tensor b = rand({100}, mesh, {Shard(0)});
    EXPECT_EQ(default_generator().offset(), 2);
    EXPECT_FALSE(full_tensor(a).equal(full_tensor(b)));
    EXPECT_FALSE(to_local(a).equal(full_tensor(b).narrow(0, 0, 50)));
    manual_seed(1);
    EXPECT_TRUE(full_tensor(rand({100}, mesh, {Replicate()})).equal(full_tensor(a)));
    manual_seed(2);
    EXPECT_FALSE(full_tensor(rand({100}, mesh, {Replicate()})).equal(full_tensor(a)));
  });
}

TEST(RandomTest, StateForkAndScope) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    manual_seed(9);
    rand({3}, mesh, {Replicate()});
    const std::vector<uint8_t> state = default_generator().state();
    const Tensor next = full_tensor(rand({10}, mesh, {Shard(0)}));
    Generator other(4);
    other.set_state(state);
    EXPECT_EQ(other.seed(), 9);
    EXPECT_EQ(other.offset(), 1);
    EXPECT_TRUE(full_tensor(rand({10}, mesh, {Shard(0)}, {}, other)).equal(next));
    default_generator().set_state(state);
    {
      const GeneratorScope scope(default_generator().fork());
      EXPECT_TRUE(full_tensor(rand({10}, mesh, {Shard(0)})).equal(next));
    }
    EXPECT_EQ(default_generator().offset(), 1) << "the fork drew, not the default one";
    EXPECT_TRUE(full_tensor(rand({10}, mesh, {Shard(0)})).equal(next));
    // A mesh with a generator of its own leaves the default one alone.
    manual_seed(mesh, 9);
    EXPECT_EQ(current_generator(mesh).offset(), 0);
    rand({10}, mesh, {Shard(0)});
    EXPECT_EQ(current_generator(mesh).offset(), 1);
    EXPECT_EQ(default_generator().offset(), 2);
  });
}

TEST(RandomTest, ADrawSendsNothingOnceTheRanksHaveCompared) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    rand({8}, mesh, {Replicate()});
    const CommRecorder recorder;
    Tensor x = rand({8}, mesh, {Replicate()});
    x.normal_();
    rand({8}, mesh, {Shard(0)});
    torch::dropout(x, 0.5, true);
    randperm(10'000, mesh, {Shard(0)});
    EXPECT_TRUE(recorder.calls().empty());
  });
}

// Backward makes the mask again: where forward dropped, the gradient is 0, and elsewhere the scale.
TEST(RandomTest, DropoutKeepsNoMaskAndBackwardSeesTheSame) {
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
    for (const Placements& p : all_placements(mesh.mesh(), 2, false)) {
      manual_seed(3);
      Tensor x = distribute_tensor(torch::ones({9, 5}), mesh, p).requires_grad_();
      const Tensor y = torch::dropout(x, 0.25, true);
      // A gradient that lies elsewhere.
      y.mul(distribute_tensor(torch::ones({9, 5}), mesh, {Shard(1), Replicate()})).sum().backward();
      EXPECT_TRUE(full_tensor(x.grad()).equal(full_tensor(y).detach()));
      EXPECT_NEAR(full_tensor(y).detach().max().item<double>(), 1 / 0.75, 1e-6);
      // The same offset, the same mask: as in a forward that is computed again.
      default_generator().set_offset(0);
      EXPECT_TRUE(full_tensor(torch::dropout(x, 0.25, true)).equal(full_tensor(y)));
      default_generator().set_offset(0);
      EXPECT_TRUE(full_tensor(std::get<0>(torch::native_dropout(x, 0.25, true))).equal(full_tensor(y)));
    }
  });
}

TEST(RandomTest, DropoutHasSecondDerivatives) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    manual_seed(3);
    Tensor x = distribute_tensor(torch::arange(1.0, 9.0), mesh, {Shard(0)}).requires_grad_();
    const Tensor y = torch::dropout(x * x * x, 0.5, true);
    const Tensor first = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    const Tensor second = torch::autograd::grad({first.sum()}, {x})[0];
    const Tensor kept = full_tensor(y).detach() != 0;
    EXPECT_TRUE(full_tensor(second).allclose(torch::arange(1.0, 9.0) * 12 * kept));
  });
}

TEST(RandomTest, AttentionDropsByPlace) {
  const Tensor q = numbers_in_unit({4, 4, 6, 8}, at::kDouble);
  const auto attend = [](const Tensor& x) {
    return torch::scaled_dot_product_attention(x, x + 1, x * 2, {}, 0.3, true);
  };
  Tensor one;
  Tensor gradient;
  for (const Mesh& ranks : {Mesh({{"a", 1}}), Mesh({{"a", 3}}), Mesh({{"a", 2}, {"b", 2}})}) {
    spawn(static_cast<int>(ranks.size()), [&](World& world) {
      const DeviceMesh mesh("cpu", ranks);
      for (const Placements& p : all_placements(ranks, 2, false)) {
        manual_seed(8);
        Tensor x = distribute_tensor(q, mesh, p).requires_grad_();
        const Tensor y = attend(x);
        y.square().sum().backward();
        const Tensor whole = full_tensor(y).detach();
        const Tensor grad = full_tensor(x.grad());
        if (ranks.size() == 1 && !one.defined()) {
          one = whole;
          gradient = grad;
        }
        EXPECT_TRUE(whole.allclose(one, 1e-12, 1e-12)) << to_string(p) << world.rank();
        EXPECT_TRUE(grad.allclose(gradient, 1e-11, 1e-11)) << to_string(p);
      }
    });
  }
}

// What plain torch draws on one device after torch::manual_seed.
TEST(RandomTest, TorchExactDrawsWhatTorchDraws) {
  struct Case {
    Dims shape;
    c10::ScalarType dtype;
  };
  const std::vector<Case> cases = {{{5, 7}, at::kFloat},       {{3, 4}, at::kDouble}, {{40, 9}, at::kBFloat16},
                                   {{3001, 1000}, at::kFloat}, {{15}, at::kFloat},    {{2'500'001}, at::kDouble}};
  using Draw = std::function<void(Tensor&, const std::optional<at::Generator>&)>;
  const std::vector<Draw> draws = {
      [](Tensor& x, const auto& g) { x.uniform_(-1, 2, g); },
      [](Tensor& x, const auto& g) { x.normal_(1, 2, g); },
      [](Tensor& x, const auto& g) { x.bernoulli_(0.3, g); },
      [](Tensor& x, const auto& g) { x.exponential_(1.5, g); },
      [](Tensor& x, const auto& g) { x.random_(100, g); },
      [](Tensor& x, const auto& g) { x.copy_(torch::poisson(x.abs(), g)); },
      [](Tensor& x, const auto& g) { x.copy_(torch::randn_like(x, g)); },
  };
  for (const Case& c : cases) {
    std::vector<Tensor> expected;
    const at::Generator torchs = at::detail::createCPUGenerator(11);
    Tensor plain = torch::zeros(c.shape, c.dtype);
    for (const Draw& draw : draws) {
      draw(plain, torchs);
      expected.push_back(plain.clone());
    }
    const Tensor order = torch::randperm(50, torchs, at::TensorOptions(at::kLong));
    spawn(3, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {3});
      for (const Placements& p : all_placements(mesh.mesh(), static_cast<int64_t>(c.shape.size()), false)) {
        manual_seed(11, RngMode::torch_exact);
        Tensor x = zeros(c.shape, mesh, p, c.dtype);
        for (size_t i = 0; i < draws.size(); ++i) {
          draws[i](x, std::nullopt);
          EXPECT_TRUE(same_bits(full_tensor(x), expected[i])) << i << " " << to_string(x);
        }
        EXPECT_TRUE(full_tensor(randperm(50, mesh, {Shard(0)})).equal(order));
      }
    });
  }
}

TEST(RandomTest, TorchExactInitializesAndDropsAsOneDevice) {
  torch::manual_seed(5);
  torch::nn::Linear plain(6, 10);
  torch::nn::init::xavier_normal_(plain->weight);
  torch::nn::init::uniform_(plain->bias);
  const Tensor x = numbers_in_unit({4, 6}, at::kFloat);
  const Tensor y = torch::dropout(plain(x), 0.5, true);
  const Tensor mask = std::get<1>(torch::native_dropout(x, 0.5, true));
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    manual_seed(5, RngMode::torch_exact);
    static std::mutex one_at_a_time;  // the constructor draws from torch's own generator
    std::optional<torch::nn::Linear> made;
    {
      const std::lock_guard lock(one_at_a_time);
      made.emplace(6, 10);
    }
    torch::nn::Linear& model = *made;
    distribute_parameter_(model->weight, mesh, {Shard(0)});
    distribute_parameter_(model->bias, mesh, {Shard(0)});
    model->reset_parameters();  // what a constructor on one device draws
    torch::nn::init::xavier_normal_(model->weight);
    torch::nn::init::uniform_(model->bias);
    EXPECT_TRUE(same_bits(full_tensor(model->weight.detach()), plain->weight.detach())) << world.rank();
    EXPECT_TRUE(same_bits(full_tensor(model->bias.detach()), plain->bias.detach()));
    const Tensor sharded = distribute_tensor(x, mesh, {Shard(0)});
    EXPECT_TRUE(full_tensor(torch::dropout(model(sharded), 0.5, true)).allclose(y));
    EXPECT_TRUE(full_tensor(std::get<1>(torch::native_dropout(sharded, 0.5, true))).equal(mask));
  });
}

TEST(RandomTest, TheStateOfTorchExactIsTorchsToo) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    manual_seed(5, RngMode::torch_exact);
    randn({3}, mesh, {Replicate()});
    const auto state = default_generator().state();
    const Tensor next = full_tensor(randn({40}, mesh, {Shard(0)}));
    Generator other(0);
    other.set_state(state);
    EXPECT_EQ(other.mode(), RngMode::torch_exact);
    EXPECT_TRUE(full_tensor(randn({40}, mesh, {Shard(0)}, {}, other)).equal(next));
  });
}

}  // namespace
}  // namespace sherd::testing
