// Whether calls fit together, told in three ways that must give one answer.

#include "comm/call_shape.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

namespace sherd::detail {
namespace {

bool fit_by_sums(const std::vector<Call>& calls) {
  const auto n = static_cast<int>(calls.size());
  std::vector<CallSums> sums;
  for (int i = 0; i < n; ++i) sums.push_back(sums_of(calls[static_cast<size_t>(i)], i, n));
  return fit_together(sums);
}

bool fit_by_calls(const std::vector<Call>& calls) {
  std::vector<const Call*> pointers;
  for (const Call& call : calls) pointers.push_back(&call);
  return fit_together(pointers);
}

at::Tensor of(int64_t numel) { return at::empty({numel}); }

// The calls of n ranks that fit together.
std::vector<Call> fitting(Collective kind, int n, std::mt19937& random) {
  const auto few = [&] { return static_cast<int64_t>(random() % 4); };
  const int root = static_cast<int>(random() % static_cast<unsigned>(n));
  std::vector<int64_t> numels;
  for (int i = 0; i < n * n; ++i) numels.push_back(few());
  std::vector<Call> calls;
  for (int i = 0; i < n; ++i) {
    Call call{.kind = kind};
    const auto me = static_cast<size_t>(i);
    const auto all = [&](size_t stride, size_t first) {
      std::vector<at::Tensor> tensors;
      for (size_t k = 0; k < static_cast<size_t>(n); ++k) tensors.push_back(of(numels[first + k * stride]));
      return tensors;
    };
    const auto size = static_cast<size_t>(n);
    switch (kind) {
      case Collective::all_gather:
        call.inputs = {of(numels[me])};
        call.outputs = all(1, 0);
        break;
      case Collective::gather:
        call.root = root;
        call.inputs = {of(numels[me])};
        if (i == root) call.outputs = all(1, 0);
        break;
      case Collective::all_to_all:
        call.inputs = all(1, me * size);
        call.outputs = all(size, me);
        break;
      case Collective::scatter:
        call.root = root;
        if (i == root) call.inputs = all(1, 0);
        call.outputs = {of(numels[me])};
        break;
      case Collective::reduce_scatter:
        call.inputs = all(1, 0);
        call.outputs = {of(numels[me])};
        break;
      case Collective::broadcast:
      case Collective::reduce:
        call.root = root;
        [[fallthrough]];
      case Collective::all_reduce:
        call.inputs = call.outputs = {of(numels[0])};
        break;
      default:
        break;
    }
    calls.push_back(call);
  }
  return calls;
}

TEST(CallSumsTest, GiveTheAnswerOfTheWholeCalls) {
  std::mt19937 random(1);
  int refused = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    const auto kind = static_cast<Collective>(turn % 9);
    const int n = 2 + turn % 5;
    std::vector<Call> calls = fitting(kind, n, random);
    ASSERT_TRUE(fit_by_calls(calls)) << name_of(kind);
    EXPECT_TRUE(fit_by_sums(calls)) << name_of(kind);
    // One rank has one tensor of another size, or calls something else.
    Call& one = calls[random() % calls.size()];
    auto& tensors = random() % 2 == 0 && !one.inputs.empty() ? one.inputs : one.outputs;
    if (tensors.empty()) {
      one.kind = Collective::all_reduce;
    } else {
      at::Tensor& tensor = tensors[random() % tensors.size()];
      const at::Tensor before = tensor;
      tensor = of(before.numel() + 1);
      // What is reduced or broadcast is input and output in one.
      if (one.kind == Collective::all_reduce || one.kind == Collective::reduce || one.kind == Collective::broadcast) {
        one.inputs = one.outputs = {tensor};
      }
    }
    EXPECT_EQ(fit_by_sums(calls), fit_by_calls(calls)) << name_of(kind) << " of " << n;
    refused += fit_by_sums(calls) ? 0 : 1;
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace sherd::detail
