// Operators of one's own: a kernel for the CPU and a rule are enough.

#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

TORCH_LIBRARY(sherd_rule_test, library) { library.def("ffn(Tensor x, Tensor w) -> Tensor"); }
TORCH_LIBRARY_IMPL(sherd_rule_test, CPU, library) {
  library.impl("ffn", [](const Tensor& x, const Tensor& w) { return x.mm(w); });
}

Tensor ffn(const Tensor& x, const Tensor& w) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("sherd_rule_test::ffn", "");
  return op.typed<Tensor(const Tensor&, const Tensor&)>().call(x, w);
}

// It has no derivative: torch lets such operators through for the backends that it knows, and so must sherd.
TEST(RegisterRuleTest, AnOperatorOfYoursIsShardedByItsRule) {
  register_rule("sherd_rule_test::ffn", "b d, d f -> b f | reduce d");
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = torch::arange(12.).view({3, 4});
    const Tensor w = torch::arange(8.).view({4, 2});
    const ExplicitRedistribution nothing_moves;
    const Tensor y = ffn(distribute_tensor(x, mesh, {Shard(1)}), distribute_tensor(w, mesh, {Shard(0)}));
    EXPECT_EQ(to_string(y), "f32[3, 2] P(sum)@tp on [tp=2]");
    EXPECT_TRUE(full_tensor(y).equal(x.mm(w)));
  });
}

// Also over what sherd does along a sharded dim by itself.
TEST(RegisterRuleTest, ARuleOfYoursWinsOverWhatIsBuiltIn) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = torch::arange(12.).view({4, 3});
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)});
    EXPECT_EQ(to_string(d.cumprod(0)), "f32[4@tp, 3] on [tp=2]");
    barrier(world.group());
    if (world.rank() == 0) register_rule("aten::cumprod", "i j -> i j | whole i j");
    barrier(world.group());
    EXPECT_EQ(to_string(d.cumprod(0)), "f32[4, 3] on [tp=2]");
    EXPECT_TRUE(full_tensor(d.cumprod(0)).equal(x.cumprod(0)));
  });
}

// Registered while the program runs, and met by all ranks at the same time.
TEST(LateOperatorTest, RanksThatMeetANewOperatorAtOnceAllRunIt) {
  static auto* library = new torch::Library(torch::Library::DEF, "sherd_late_test", std::nullopt, __FILE__, __LINE__);
  library->def("twice(Tensor x) -> Tensor");
  library->impl("twice", torch::dispatch(c10::DispatchKey::CPU, [](const Tensor& x) { return x * 2; }));
  register_rule("sherd_late_test::twice", "* -> *");
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("sherd_late_test::twice", "");
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"dp"});
    const Tensor x = distribute_tensor(torch::arange(8.), mesh, {Shard(0)});
    barrier(world.group());
    const Tensor y = op.typed<Tensor(const Tensor&)>().call(x);
    EXPECT_EQ(to_string(y), "f32[8@dp] on [dp=4]");
    EXPECT_TRUE(full_tensor(y).equal(torch::arange(8.) * 2));
  });
}

}  // namespace
}  // namespace sherd::testing
