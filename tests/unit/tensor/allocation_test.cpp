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
thread_local int64_t bytes_taken = 0;

}  // namespace

// Of this program and of the libraries that it loads.
[[gnu::noinline]] void* operator new(size_t size) {
  ++taken;
  bytes_taken += static_cast<int64_t>(size);
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

// On a fake world of any size a rank talks to eight others: neither the plan nor the move touches more than these.
TEST(AllocationTest, AMoveTakesAsMuchOnALargerWorld) {
  struct Taken {
    int64_t blocks = 0;
    int64_t bytes = 0;
    bool operator==(const Taken&) const = default;
  };
  const auto taken_by = [](const std::function<void()>& call) {
    const Taken before{taken, bytes_taken};
    call();
    return Taken{taken - before.blocks, bytes_taken - before.bytes};
  };
  const torch::NoGradGuard no_grad;
  const auto moves_on = [&](int ranks, bool turned) {
    const WorldScope world(fake_world(ranks / 2 + 3, ranks));
    std::vector<int64_t> order(static_cast<size_t>(ranks));
    for (int i = 0; i < ranks; ++i) order[static_cast<size_t>(i)] = turned ? ranks - 1 - i : i;
    const DeviceMesh mesh("cpu", Mesh({{"dp", ranks / 8}, {"tp", 8}}, order));
    std::vector<Taken> result;
    const Placement r = Replicate();
    const std::vector<std::pair<Placements, Placements>> moves = {
        {{r, Shard(0)}, {r, Shard(1)}}, {{r, Shard(0)}, {r, r}}, {{Shard(1), Partial()}, {Shard(1), Shard(0)}}};
    for (const auto& [from, to] : moves) {
      const Tensor part = is_shard(from[1]) ? torch::zeros({8, 64}) : torch::zeros({64, 16384 * 8 / ranks});
      const Dims shape = is_shard(from[1]) ? Dims{64, 64} : Dims{64, 16384};
      const Tensor moved = from_local(part, mesh, from, {.shape = shape});
      const auto move = [&] { redistribute(moved, to, {.prefer = RedistributeOptions::Prefer::bytes}); };
      result.push_back(taken_by(move));  // a new plan, and the groups and backends that it needs
      for (int i = 0; i < 20; ++i) move();
      result.push_back(taken_by(move));
    }
    return result;
  };
  moves_on(64, false);  // what is made once in a process
  for (const bool turned : {false, true}) {
    const auto few = moves_on(1024, turned);
    const auto many = moves_on(16384, turned);
    for (size_t i = 0; i < few.size(); ++i) {
      // What a new plan is kept in grows now and then, and a group's name has longer numbers.
      const int64_t more = i % 2 == 0 ? 16 << 10 : 512;
      EXPECT_LE(many[i].blocks, few[i].blocks + (i % 2 == 0 ? 16 : 0)) << i << (turned ? " turned" : "");
      EXPECT_LE(many[i].bytes, few[i].bytes + more) << i << (turned ? " turned" : "");
    }
  }
}

}  // namespace
}  // namespace sherd::testing
