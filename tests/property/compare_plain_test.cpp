// A plain tensor that meets a DTensor counts as the same on every rank; a world that checks says where it is not.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kDouble).mul(0.37).sin().view(shape);
}

// What each of two ranks is told.
std::vector<std::string> errors_of(const std::function<void(const DeviceMesh&, int64_t)>& run) {
  std::vector<std::string> texts(2);
  spawn(2,
        [&](World& world) {
          const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
          try {
            run(mesh, world.rank());
          } catch (const c10::ValueError& error) {
            texts[static_cast<size_t>(world.rank())] = error.what_without_backtrace();
          }
        },
        {.timeout = std::chrono::seconds(10), .check = true});
  return texts;
}

TEST(ComparePlainTest, ABatchOfEachRank) {
  const auto texts = errors_of([](const DeviceMesh& mesh, int64_t rank) {
    const Tensor weight = distribute_tensor(numbers({4, 3}), mesh, {Replicate()});
    const Tensor batch = torch::full({2, 4}, static_cast<double>(rank));
    batch.to(torch::kDouble).mm(weight);
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0].substr(0, texts[0].find('\n')),
            "mm: a plain tensor that meets a DTensor counts as the same on every rank, and is not");
  EXPECT_NE(texts[0].find("\n  rank 0: self f64[2, 4], digest "), std::string::npos) << texts[0];
  EXPECT_NE(texts[0].find("\n  rank 1: self f64[2, 4], digest "), std::string::npos) << texts[0];
}

// Found the second time, too: the call is one that was planned before.
TEST(ComparePlainTest, TheSecondBatch) {
  int64_t steps[2] = {0, 0};
  const auto texts = errors_of([&](const DeviceMesh& mesh, int64_t rank) {
    const Tensor weight = distribute_tensor(numbers({4, 3}), mesh, {Shard(1)});
    for (int64_t step = 0; step < 3; ++step) {
      const Tensor batch = torch::full({2, 4}, static_cast<double>(step < 2 ? 1 : rank), torch::kDouble);
      EXPECT_LE((full_tensor(batch.mm(weight)) - batch.mm(numbers({4, 3}))).abs().max().item<double>(), 1e-10);
      ++steps[rank];
    }
  });
  EXPECT_EQ(steps[0], 2);
  EXPECT_EQ(steps[1], 2);
  EXPECT_NE(texts[0], "");
  EXPECT_EQ(texts[0], texts[1]);
}

// An operator that is carried out as others; a list of tensors; a mask; a gradient.
TEST(ComparePlainTest, EveryWayToMeet) {
  using Run = std::function<void(const Tensor&, int64_t)>;
  const std::pair<const char*, Run> cases[] = {
      {"embedding", [](const Tensor& x, int64_t rank) { torch::embedding(x, torch::full({3}, rank, torch::kLong)); }},
      {"add", [](const Tensor& x, int64_t rank) { x.add(torch::full({3}, static_cast<double>(rank))); }},
      {"add_", [](const Tensor& x, int64_t rank) { x.clone().add_(torch::full({3}, static_cast<double>(rank))); }},
      {"cat",
       [](const Tensor& x, int64_t rank) {
         torch::cat({x, torch::full({1, 3}, static_cast<double>(rank))});
       }},
      {"masked_fill",
       [](const Tensor& x, int64_t rank) {
         x.masked_fill(torch::full({4, 3}, rank == 0), 0.0);
       }},
      {"backward",
       [](const Tensor& x, int64_t rank) {
         Tensor leaf = x.detach().clone().requires_grad_();
         leaf.mul(leaf).backward(torch::full({4, 3}, static_cast<double>(rank), torch::kDouble));
       }},
  };
  for (const auto& [name, run] : cases) {
    const auto texts = errors_of([&](const DeviceMesh& mesh, int64_t rank) {
      run(distribute_tensor(numbers({4, 3}), mesh, {Shard(0)}), rank);
    });
    EXPECT_NE(texts[0], "") << name;
    EXPECT_EQ(texts[0], texts[1]) << name;
  }
}

TEST(ComparePlainTest, EqualOnesAndNumbersPass) {
  const auto texts = errors_of([](const DeviceMesh& mesh, int64_t rank) {
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor y = x.mul(2).add(numbers({3})).masked_fill(torch::ones({4, 3}, torch::kBool), 1.0);
    EXPECT_EQ(y.sum().item<double>(), 12);
    x.mul(static_cast<double>(rank + 1));  // a number, which nobody compares
  });
  EXPECT_EQ(texts, std::vector<std::string>(2));
}

// Nothing is compared where the world does not check.
TEST(ComparePlainTest, OffByDefault) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor plain = torch::full({3}, static_cast<double>(world.rank()), torch::kDouble);
    const Tensor local = to_local(x.add(plain));
    EXPECT_TRUE(local.equal(to_local(x).add(plain)));
  });
}

}  // namespace
}  // namespace sherd::testing
