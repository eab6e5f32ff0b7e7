#include "sherd/world.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "sherd/collectives.h"

namespace sherd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(SpawnTest, RunsEveryRankOnceInAThreadOfItsOwn) {
  std::mutex mutex;
  std::set<int> ranks;
  std::set<std::thread::id> threads;
  spawn(5, [&](World& world) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(world.size(), 5);
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.local_size(), 5);
    ranks.insert(world.rank());
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(threads.size(), 5u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}

TEST(SpawnTest, TheWorldOfARankIsItsCurrentOne) {
  spawn(2, [](World& world) {
    EXPECT_EQ(current_world(), world);
    EXPECT_EQ(world.group().ranks(), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(world.group(), world.group({0, 1}));
  });
}

struct OddError : std::logic_error {
  using std::logic_error::logic_error;
};

TEST(SpawnTest, RethrowsTheFirstExceptionWithItsType) {
  try {
    spawn(4, [](World& world) {
      if (world.rank() == 2) throw OddError("rank 2 is odd");
      barrier(world.group());  // the others fail here, because of rank 2
    });
    ADD_FAILURE() << "no exception";
  } catch (const OddError& error) {
    EXPECT_STREQ(error.what(), "rank 2 is odd");
  }
  EXPECT_THROW(spawn(3,
                     [](World& world) {
                       if (world.rank() == 1) throw 7;
                       barrier(world.group());
                     }),
               int);
}

TEST(SpawnTest, RanksThatCallNothingMoreEndInPeaceWhenOneFails) {
  std::atomic<int> ended = 0;
  EXPECT_THROW(spawn(3,
                     [&](World& world) {
                       barrier(world.group());
                       if (world.rank() == 0) throw std::runtime_error("no");
                       ++ended;
                     }),
               std::runtime_error);
  EXPECT_EQ(ended, 2);
}

TEST(SpawnTest, ACollectiveThatTookPlaceIsGoodThoughARankFailsAfterIt) {
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> right = 0;
    EXPECT_THROW(spawn(3,
                       [&](World& world) {
                         const at::Tensor one = at::ones({1});
                         all_reduce(world.group(), one).wait();
                         if (one.item<float>() == 3) ++right;
                         throw std::runtime_error("afterwards");
                       }),
                 std::runtime_error);
    EXPECT_EQ(right, 3);
  }
}

TEST(SpawnTest, MayBeNested) {
  std::atomic<int> inner_ranks = 0;
  spawn(2, [&](World& outer) {
    spawn(3, [&](World& inner) {
      EXPECT_EQ(inner.size(), 3);
      EXPECT_EQ(current_world(), inner);
      const at::Tensor one = at::ones({1});
      all_reduce(inner.group(), one).wait();
      EXPECT_EQ(one.item<float>(), 3);
      ++inner_ranks;
    });
    EXPECT_EQ(current_world(), outer);
    const at::Tensor one = at::ones({1});
    all_reduce(outer.group(), one).wait();
    EXPECT_EQ(one.item<float>(), 2);
  });
  EXPECT_EQ(inner_ranks, 6);
}

TEST(SpawnTest, ManyRanksShareTheCores) {
  const int before = at::get_num_threads();
  at::set_num_threads(4);
  spawn(2, [](World&) { EXPECT_EQ(at::get_num_threads(), 2); });
  EXPECT_EQ(at::get_num_threads(), 4);
  spawn(8, [](World&) { EXPECT_EQ(at::get_num_threads(), 1); });
  EXPECT_EQ(at::get_num_threads(), 4);
  EXPECT_THROW(spawn(2, [](World&) { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(at::get_num_threads(), 4);
  at::set_num_threads(before);
}

TEST(SpawnTest, BackwardRunsInTheThreadOfItsRank) {
  spawn(2, [](World& world) {
    EXPECT_FALSE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
    EXPECT_TRUE(c10::AutogradState::get_tls_state().get_view_replay_enabled());
    const at::Tensor x = at::ones({2}).requires_grad_();
    const auto rank_thread = std::this_thread::get_id();
    at::Tensor y = x * 2;
    y.register_hook([&](const at::Tensor& grad) {
      EXPECT_EQ(std::this_thread::get_id(), rank_thread);
      const at::Tensor sum = grad.clone();
      all_reduce(world.group(), sum).wait();
      return sum;
    });
    y.sum().backward();
    EXPECT_EQ(x.grad()[0].item<float>(), 4);
  });
}

TEST(SpawnTest, HasTheTimeoutItIsGiven) {
  spawn(1, [](World& world) { EXPECT_EQ(world.timeout(), milliseconds(1500)); }, {.timeout = milliseconds(1500)});
  // The longest there is does not overflow any clock.
  spawn(2, [](World& world) { barrier(world.group()); }, {.timeout = milliseconds::max()});
}

TEST(SpawnTest, SixtyFourRanksMeet) {
  spawn(64, [](World& world) {
    const at::Tensor one = at::ones({1});
    all_reduce(world.group(), one).wait();
    EXPECT_EQ(one.item<float>(), 64);
  });
}

TEST(SpawnTest, TensorsOfACallAreLetGoWhenItIsOver) {
  spawn(2, [](World& world) {
    const at::Tensor small = at::ones({8});
    const at::Tensor large = at::ones({100'000});
    const at::Tensor gathered = at::empty({16});
    all_reduce(world.group(), small).wait();
    all_reduce(world.group(), large).wait();
    const at::Tensor exchanged = at::empty({8});
    const at::Tensor part = at::empty({4});
    const at::Tensor message = at::ones({2});
    const at::Tensor received = at::empty({2});
    const int other = 1 - world.rank();
    all_gather(world.group(), gathered, small).wait();
    all_to_all(world.group(), exchanged, small).wait();
    reduce_scatter(world.group(), part, small).wait();
    scatter(world.group(), part, world.rank() == 0 ? small : at::Tensor(), 0).wait();
    broadcast(world.group(), small, 0).wait();
    send(world.group(), message, other).wait();
    receive(world.group(), received, other).wait();
    barrier(world.group());  // until here the other rank may be about to let go
    for (const at::Tensor& tensor : {small, large, gathered, exchanged, part, message, received}) {
      EXPECT_EQ(tensor.use_count(), 2u) << tensor.sizes();  // this list holds it, too
      EXPECT_EQ(tensor.storage().use_count(), 1u) << tensor.sizes();
    }
  });
}

TEST(FakeWorldTest, IsOneRankOfThousands) {
  const World world = fake_world(4095, 4096);
  EXPECT_EQ(world.rank(), 4095);
  EXPECT_EQ(world.size(), 4096);
  EXPECT_EQ(world.group().size(), 4096);
  EXPECT_EQ(world.group().name(), "ranks 0-4095");
  EXPECT_EQ(world.group().backend(c10::DeviceType::CPU)->getBackendName(), "fake");
}

TEST(FakeWorldTest, EveryCollectiveReturnsAtOnceWithThisRanksData) {
  const Group group = fake_world(1, 3).group();
  const at::Tensor in = at::arange(2);
  const at::Tensor all = at::zeros({6}, at::kLong);
  all_gather(group, all, in).wait();
  EXPECT_TRUE(at::equal(all, at::arange(2).repeat({3})));
  const at::Tensor uneven = at::full({5}, 9, at::kLong);
  all_gather_uneven(group, uneven, in, {2, 2, 1}).wait();
  EXPECT_TRUE(at::equal(uneven, at::tensor({0, 1, 0, 1, 9}, at::kLong)));
  const at::Tensor sum = at::ones({2});
  all_reduce(group, sum).wait();
  EXPECT_TRUE(at::equal(sum, at::ones({2})));
  const at::Tensor part = at::zeros({2}, at::kLong);
  reduce_scatter(group, part, at::arange(6)).wait();
  EXPECT_TRUE(at::equal(part, at::tensor({2, 3}, at::kLong)));
  const at::Tensor exchanged = at::zeros({6}, at::kLong);
  all_to_all(group, exchanged, at::arange(6)).wait();
  EXPECT_TRUE(at::equal(exchanged, at::tensor({2, 3}, at::kLong).repeat({3})));
  broadcast(group, sum, 0).wait();
  scatter(group, part, {}, 0).wait();
  send(group, in, 2).wait();
  receive(group, in, 2).wait();
  barrier(group);
  EXPECT_EQ(all_gather_text(group, "abc"), (std::vector<std::string>{"abc", "abc", "abc"}));
  agree(group, "nothing", [] {});
}

TEST(WorldScopeTest, Nests) {
  const World outer = fake_world(0, 2);
  const World inner = fake_world(1, 4);
  const WorldScope outer_scope(outer);
  {
    const WorldScope inner_scope(inner);
    EXPECT_EQ(current_world(), inner);
    EXPECT_NE(current_world(), outer);
  }
  EXPECT_EQ(current_world(), outer);
}

TEST(InitTest, WithoutALauncherIsAWorldOfOne) {
  const World world = init();
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(current_world(), world);
  EXPECT_EQ(init(), world);
  const at::Tensor one = at::ones({1});
  all_reduce(world.group(), one).wait();
  EXPECT_EQ(one.item<float>(), 1);
  EXPECT_EQ(world.group().backend(c10::DeviceType::CPU)->getBackendName(), "single");
}

TEST(GroupTest, WrapsABackendThatExists) {
  spawn(2, [](World& world) {
    // Ranks 7 and 3 of somebody's own world.
    const Group group = Group::from_backend(world.group().backend(c10::DeviceType::CPU), {7, 3});
    EXPECT_EQ(group.rank(), world.rank());
    EXPECT_THAT(group.ranks(), ElementsAre(7, 3));
    EXPECT_EQ(group.name(), "ranks 7, 3");
    const at::Tensor one = at::ones({1});
    all_reduce(group, one).wait();
    EXPECT_EQ(one.item<float>(), 2);
  });
}

// Large results are written by all ranks together, each its share of the bytes, wherever the parts begin and end.
TEST(ThreadsTest, LargeGathersAndBroadcastsReachEveryPlace) {
  for (const int ranks : {2, 3, 5}) {
    spawn(ranks, [ranks](World& world) {
      const int me = world.rank();
      const auto values = [](int64_t numel, int salt) {
        return torch::arange(numel, torch::kInt).mul(7).add(salt).remainder(251).to(torch::kUInt8);
      };
      std::vector<int64_t> numels;
      for (int i = 0; i < ranks; ++i) numels.push_back(i == 1 ? 0 : 3'000'001 * (i + 1) + 17);
      std::vector<at::Tensor> parts;
      int64_t total = 0, before = 0;
      for (int i = 0; i < ranks; ++i) {
        parts.push_back(values(numels[static_cast<size_t>(i)], i));
        if (i < me) before += numels[static_cast<size_t>(i)];
        total += numels[static_cast<size_t>(i)];
      }
      for (const int64_t more : {0, 9'000'000}) {  // on both sides of where a result counts as large
        numels[0] += more;
        total += more;
        if (me > 0) before += more;
        parts[0] = values(numels[0], 0);
        const at::Tensor& mine = parts[static_cast<size_t>(me)];
        const at::Tensor out = torch::zeros({total}, torch::kUInt8);
        all_gather_uneven(world.group(), out, mine, numels).wait();
        EXPECT_TRUE(out.equal(torch::cat(parts)));
        // From its own place in the result.
        const at::Tensor again = torch::zeros({total}, torch::kUInt8);
        const at::Tensor own = again.narrow(0, before, mine.numel());
        own.copy_(mine);
        all_gather_uneven(world.group(), again, own, numels).wait();
        EXPECT_TRUE(again.equal(torch::cat(parts)));
      }
      const at::Tensor told = me == ranks - 1 ? values(11'000'003, 5) : torch::zeros({11'000'003}, torch::kUInt8);
      broadcast(world.group(), told, ranks - 1).wait();
      EXPECT_TRUE(told.equal(values(11'000'003, 5)));
    });
  }
}

}  // namespace
}  // namespace sherd
