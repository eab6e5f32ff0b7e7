// Whatever the rectangles: a ShardedTensor gives what the whole tensor gives, gradients too.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "property/random_spec.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using sharded::ShardedTensor;

Tensor numbers(at::IntArrayRef shape, c10::ScalarType dtype = c10::kDouble) {
  return torch::arange(c10::multiply_integers(shape), torch::kLong).remainder(11).sub(4).view(shape).to(dtype);
}

// The whole tensor on every rank: gathered by each in turn.
Tensor gathered(const Tensor& tensor) {
  if (!sharded::is_sharded_tensor(tensor)) return tensor;
  const ShardedTensor whole(tensor);
  Tensor mine;
  for (int dst = 0; dst < whole.group()->size(); ++dst) {
    const bool here = whole.group()->rank() == dst;
    Tensor out = torch::empty(tensor.sizes(), tensor.options().device(torch::kCPU));
    whole.gather(dst, here ? std::optional(out) : std::nullopt);
    if (here) mine = out;
  }
  return mine;
}

class ShardedOn : public ::testing::TestWithParam<int> {
 protected:
  // The body on every rank, for many seeds.
  static void each(int seeds, const std::function<void(SpecMaker&)>& body) {
    spawn(GetParam(),
          [&](World& world) {
            for (int seed = 0; seed < seeds; ++seed) {
              SpecMaker make(static_cast<uint32_t>(seed), world.size());
              SCOPED_TRACE("seed " + std::to_string(seed));
              body(make);
            }
          },
          {.timeout = std::chrono::seconds(20)});
  }
};

TEST_P(ShardedOn, ComesTogetherAgain) {
  for (const auto dtype : {c10::kLong, c10::kBool, c10::kBFloat16, c10::kDouble, c10::kComplexFloat}) {
    each(25, [&](SpecMaker& make) {
      const Dims size = make.size();
      const Tensor whole = numbers(size, dtype);
      const ShardedTensor sharded = sharded::shard_tensor(whole, make.spec(size), make.below(GetParam()));
      EXPECT_TRUE(gathered(sharded).equal(whole)) << to_string(sharded);
    });
  }
}

TEST_P(ShardedOn, GoesFromAnyRectanglesToAny) {
  each(60, [](SpecMaker& make) {
    const Dims size = make.size();
    const Tensor whole = numbers(size).requires_grad_();
    const ShardedTensor before = sharded::shard_tensor(whole, make.spec(size));
    const auto spec = make.spec(size);
    const ShardedTensor after = before.reshard(spec);
    EXPECT_TRUE(gathered(after.detach()).equal(whole.detach())) << to_string(before) << to_string(after);
    EXPECT_TRUE(after.sharding_spec() == spec);
    const Tensor factor = numbers(size) + 1;
    (after * factor).sum().backward();
    ASSERT_TRUE(before.grad().defined());
    EXPECT_TRUE(sharded::is_sharded_tensor(before.grad()));
    EXPECT_TRUE(gathered(before.grad()).equal(factor));
    EXPECT_TRUE(ShardedTensor(before.grad()).sharding_spec() == before.sharding_spec());
  });
}

// The operator on the whole tensors and on sharded ones.
using Operator = std::function<Tensor(const Tensor& x, const Tensor& y, const Tensor& plain)>;
struct Named {
  const char* name;
  Operator run;
};
const Named kOperators[] = {
    {"relu", [](const Tensor& x, const Tensor&, const Tensor&) { return x.relu(); }},
    {"add", [](const Tensor& x, const Tensor& y, const Tensor&) { return x + y; }},
    {"mul plain", [](const Tensor& x, const Tensor&, const Tensor& plain) { return plain * x; }},
    {"broadcast", [](const Tensor& x, const Tensor&, const Tensor& plain) { return x * plain.select(0, 0); }},
    {"where", [](const Tensor& x, const Tensor& y, const Tensor&) { return torch::where(x > 0, x, y); }},
    {"sum", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sum(); }},
    {"sum of a dim", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sum(0); }},
    {"sum of the last", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sum(-1, true); }},
    {"amax", [](const Tensor& x, const Tensor&, const Tensor&) { return x.amax(); }},
    {"mean", [](const Tensor& x, const Tensor&, const Tensor&) { return x.mean(); }},
    {"norm", [](const Tensor& x, const Tensor&, const Tensor&) { return x.norm(); }},
    {"var", [](const Tensor& x, const Tensor&, const Tensor&) { return x.var(false); }},
    {"softmax", [](const Tensor& x, const Tensor&, const Tensor&) { return x.softmax(0); }},
    {"transpose", [](const Tensor& x, const Tensor&, const Tensor&) { return x.transpose(0, -1).exp(); }},
    {"unsqueeze", [](const Tensor& x, const Tensor&, const Tensor&) { return x.unsqueeze(0) * 2; }},
    {"mm",
     [](const Tensor& x, const Tensor&, const Tensor& plain) { return x.dim() == 2 ? x.t().mm(plain) : x * plain; }},
    {"cumsum", [](const Tensor& x, const Tensor&, const Tensor&) { return x.cumsum(0); }},
    {"to", [](const Tensor& x, const Tensor&, const Tensor&) { return x.to(torch::kFloat).to(torch::kDouble); }},
    {"clone", [](const Tensor& x, const Tensor&, const Tensor&) { return x.clone() + x.detach(); }},
    {"in place",
     [](const Tensor& x, const Tensor& y, const Tensor& plain) { return x.mul(1).add_(y).mul_(plain).clamp_min_(-1); }},
    {"zeros_like", [](const Tensor& x, const Tensor&, const Tensor&) { return x + torch::zeros_like(x).fill_(3); }},
    {"full_like", [](const Tensor& x, const Tensor&, const Tensor&) { return x * torch::full_like(x, 2); }},
    {"sigmoid", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sigmoid().log1p(); }},
};

TEST_P(ShardedOn, OperatorsGiveWhatTheWholeTensorGives) {
  for (const Named& op : kOperators) {
    SCOPED_TRACE(op.name);
    each(12, [&](SpecMaker& make) {
      const Dims size = make.size(1);
      const Tensor whole = numbers(size).requires_grad_();
      const Tensor other = (numbers(size) * 2 + 1).requires_grad_();
      const Tensor plain = (numbers(size) - 3).requires_grad_();
      const Tensor x = sharded::shard_tensor(whole, make.spec(size));
      const Tensor y = sharded::shard_tensor(other, make.spec(size));
      const Tensor plain_here = plain.detach().clone().requires_grad_();
      const Tensor expected = op.run(whole, other, plain);
      const Tensor result = op.run(x, y, plain_here);
      EXPECT_EQ(result.sizes(), expected.sizes());
      EXPECT_TRUE(gathered(result.detach()).allclose(expected.detach())) << sharded::to_string(ShardedTensor(x));
      const Tensor factor = numbers(expected.sizes()) + 2;
      (expected * factor).sum().backward();
      (result * factor).sum().backward();
      ASSERT_TRUE(x.grad().defined());
      EXPECT_TRUE(gathered(x.grad()).allclose(whole.grad())) << sharded::to_string(ShardedTensor(x));
      ASSERT_EQ(y.grad().defined(), other.grad().defined());
      if (other.grad().defined()) {
        EXPECT_TRUE(gathered(y.grad()).allclose(other.grad()));
      }
      ASSERT_EQ(plain_here.grad().defined(), plain.grad().defined());
      if (plain.grad().defined()) {
        EXPECT_TRUE(gathered(plain_here.grad()).allclose(plain.grad()));
      }
    });
  }
}

TEST_P(ShardedOn, PointwiseOperatorsSendNothing) {
  each(10, [](SpecMaker& make) {
    const Dims size = make.size(1);
    const Tensor x = sharded::shard_tensor(numbers(size), make.spec(size));
    const Tensor plain = numbers(size);
    const CommRecorder recorder;
    const Tensor y = (x > 0).logical_and(x != plain).to(torch::kDouble).add(x.abs().sqrt()).lerp(x, 0.5);
    torch::where(y.isnan(), x, y).clamp_(-1, 1).add_(plain).copy_(plain);
    torch::_foreach_add_({x, y}, 1);
    torch::zeros_like(x).masked_fill_(x >= 1, 3).to(torch::kInt).bitwise_not();
    EXPECT_EQ(recorder.calls().size(), 0U) << recorder.to_string();
  });
}

TEST_P(ShardedOn, NumbersDependOnPlaceAndSeedAlone) {
  each(20, [](SpecMaker& make) {
    const Dims size = make.size(1);
    const auto draw = [&](const sharded::ShardingSpec& spec) {
      manual_seed(7);
      ShardedTensor drawn = sharded::rand(spec, size, {});
      const Tensor more = torch::randn_like(drawn);
      return std::pair(gathered(drawn), gathered(more));
    };
    const auto [one, more] = draw(make.spec(size));
    const auto [other, others_more] = draw(make.spec(size));
    EXPECT_TRUE(one.equal(other));
    EXPECT_TRUE(more.equal(others_more));
    manual_seed(7);
    const auto mesh = init_device_mesh("cpu", {GetParam()});
    EXPECT_TRUE(full_tensor(rand(size, mesh, {Shard(0)})).equal(one));
  });
}

TEST_P(ShardedOn, OptimizersStepOnThem) {
  each(6, [](SpecMaker& make) {
    const Dims size = make.size(1);
    const Tensor whole = numbers(size).requires_grad_();
    const Tensor x = sharded::shard_tensor(whole.detach().clone().requires_grad_(), make.spec(size));
    torch::optim::AdamW dense({whole}, torch::optim::AdamWOptions(0.1));
    torch::optim::AdamW sharded({x}, torch::optim::AdamWOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      dense.zero_grad();
      sharded.zero_grad();
      (whole * whole).sum().backward();
      (x * x).sum().backward();
      dense.step();
      sharded.step();
    }
    EXPECT_TRUE(gathered(x.detach()).allclose(whole.detach()));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedOn, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace sherd::testing
