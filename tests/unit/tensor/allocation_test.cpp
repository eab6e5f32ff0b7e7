// A call that was planned before takes nothing from the heap beside what its local operator takes, but for the version
// counter of a new tensor. What else a DTensor is made of is kept and used again.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <new>

#include "sherd/sherd.h"

namespace {

thread_local int64_t taken = 0;

}  // namespace

// Of this program and of the libraries that it loads.
[[gnu::noinline]] void* operator new(size_t size) {
  ++taken;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace sherd::testing {
namespace {

using at::Tensor;

constexpr int64_t kCalls = 100;

int64_t blocks_of(const std::function<void()>& call) {
  for (int i = 0; i < 20; ++i) call();
  const int64_t before = taken;
  for (int64_t i = 0; i < kCalls; ++i) call();
  return taken - before;
}

TEST(AllocationTest, AHitTakesNothingFromTheHeap) {
  spawn(2, [](World&) {
    const torch::NoGradGuard no_grad;
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Tensor x = torch::rand({8, 8}), y = torch::rand({8, 8}), total = torch::zeros({8, 8});
    const auto rows = [&](const Tensor& local) {
      return from_local(local.clone(), mesh, {Shard(0)}, {.shape = Dims{16, 8}});
    };
    const Tensor dx = rows(x), dy = rows(y), dtotal = rows(total);
    EXPECT_EQ(blocks_of([] { delete new int; }), kCalls) << "the counter counts";
    const auto more = [](const std::function<void()>& local, const std::function<void()>& distributed) {
      return blocks_of(distributed) - blocks_of(local);
    };
    EXPECT_LE(more([&] { total.add_(y); }, [&] { dtotal.add_(dy); }), 0);
    EXPECT_LE(more([&] { x.t(); }, [&] { dx.t(); }), kCalls);
    EXPECT_LE(more([&] { at::add(x, y); }, [&] { at::add(dx, dy); }), kCalls);
    EXPECT_LE(more([&] { at::relu(x); }, [&] { at::relu(dx); }), kCalls);
    EXPECT_LE(more([&] { at::softmax(x, 1); }, [&] { at::softmax(dx, 1); }), kCalls);
  });
}

}  // namespace
}  // namespace sherd::testing
