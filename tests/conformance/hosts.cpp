// The conformance suite on what init() chooses for ranks that are spread over hosts: shared memory inside, Gloo
// between. The hosts are names that the ranks are told.

#include <gtest/gtest.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "conformance/over_processes.h"
#include "conformance/transport.h"
#include "sherd/dtensor.h"
#include "sherd/redistribute.h"

namespace sherd::testing {
namespace {

/// `host_of`: the number of a rank's host in a world of n.
std::function<void(int, const RankBody&)> over_hosts(const std::function<int(int rank, int n)>& host_of,
                                                     const WorldOptions& options = {}) {
  return over_processes(options, [host_of](int rank, int n) {
    ::setenv("SHERD_HOST", ("host " + std::to_string(host_of(rank, n))).c_str(), 1);
  });
}

Transport spread(const std::function<int(int rank, int n)>& host_of, std::vector<int> sizes) {
  // Shared memory alone cannot serve these groups.
  return {.run = over_hosts(host_of),
          .sizes = std::move(sizes),
          .other = "cpu:gloo,cuda:gloo",
          .third = "cpu:auto,cuda:gloo"};
}

int half(int rank, int n) { return rank * 2 / n; }
int last_alone(int rank, int n) { return rank == n - 1 ? 1 : 0; }
int in_turn(int rank, int) { return rank % 2; }
int three_uneven(int rank, int n) { return rank == 0 ? 0 : rank < n / 2 ? 2 : 1; }

INSTANTIATE_TRANSPORT_TESTS(TwoAndTwo, spread(half, {4}));
INSTANTIATE_TRANSPORT_TESTS(ThreeAndOne, spread(last_alone, {4}));
INSTANTIATE_TRANSPORT_TESTS(Interleaved, spread(in_turn, {3, 4}));
INSTANTIATE_TRANSPORT_TESTS(ThreeHosts, spread(three_uneven, {6}));
INSTANTIATE_TRANSPORT_TESTS(Checked,
                            (Transport{.run = over_hosts(half, {.check = true}), .sizes = {4}, .makes_groups = false}));

TEST(HostsTest, TheTransportIsChosenByTheHosts) {
  over_hosts(in_turn)(4, [](Rank& rank) {
    const auto name = [](const Group& group) { return group.backend(c10::DeviceType::CPU)->getBackendName(); };
    EXPECT_EQ(name(rank.group), "hierarchical");
    const int me = rank.world.rank();
    EXPECT_EQ(name(rank.world.group({me % 2, me % 2 + 2})), "shm");
    EXPECT_EQ(name(rank.world.group(me < 2 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3})), "gloo");
  });
}

TEST(HostsTest, RanksThatCallDifferentThingsLearnSoAndGoOn) {
  over_hosts(half)(4, [](Rank& rank) {
    const int me = rank.group.rank();
    const auto refused = [&](const std::function<void()>& call) {
      try {
        call();
      } catch (const c10::DistBackendError& error) {
        return std::string(error.what_without_backtrace());
      }
      return std::string("nothing");
    };
    const char* help = "\n  help: every rank of a group makes the same calls in the same order";
    const std::string name = me == 1 ? "barrier" : "all_reduce";
    EXPECT_EQ(
        refused([&] { me == 1 ? barrier(rank.group) : all_reduce(rank.group, at::ones({4})).wait(); }),
        name + ": ranks call different things\n  ranks 0, 2, 3: all_reduce(sum) f32[4]\n  rank 1: barrier" + help);
    EXPECT_EQ(refused([&] { all_reduce(rank.group, at::ones({me == 3 ? 5 : 4})).wait(); }),
              std::string("all_reduce: ranks call different things\n  ranks 0-2: all_reduce(sum) f32[4]\n"
                          "  rank 3: all_reduce(sum) f32[5]") +
                  help);
    // Rank 0 gives rank 3 more than that takes; ranks 1 and 2 have nothing to do with it.
    std::vector<int64_t> gives(4, 1);
    std::vector<int64_t> takes(4, 1);
    if (me == 0) gives[3] = 2;
    const at::Tensor in = at::ones({me == 0 ? 5 : 4});
    const at::Tensor out = at::ones({4});
    EXPECT_NE(refused([&] {
                all_to_all(rank.group, out, in, takes, gives).wait();
              }).find("all_to_all: ranks call different things\n"),
              std::string::npos);
    const at::Tensor total = at::ones({3});
    all_reduce(rank.group, total).wait();
    EXPECT_EQ(total[2].item<float>(), 4.0f);
  });
}

// Also where those that differ are on one host.
TEST(HostsTest, RanksThatMoveDifferentTensorsLearnSo) {
  over_hosts(half)(4, [](Rank& rank) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"a"});
    const bool other = rank.group.rank() == 1;
    // Parts that fit by chance.
    const at::Tensor x =
        from_local(at::ones({2, 4}), mesh, {Shard(other ? 1 : 0)}, {.shape = other ? Dims{2, 16} : Dims{8, 4}});
    std::string text;
    try {
      redistribute(x, {Replicate()});
    } catch (const c10::DistBackendError& error) {
      text = error.what_without_backtrace();
    }
    for (const char* part : {"ranks call different things\n", "ranks 0, 2, 3: redistribute f32[8@a, 4] on [a=4] -> (R)",
                             "rank 1: redistribute f32[2, 16@a] on [a=4] -> (R)"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
  });
}

TEST(HostsTest, SixteenBitFloatsAreRoundedOnce) {
  over_hosts(half)(4, [](Rank& rank) {
    // Half precision ends at 65504: no partial sum may be kept in it.
    for (const int64_t numel : {8, 40'000}) {
      const at::Tensor inout = at::full({numel}, 40'000.0, at::kHalf);
      all_reduce(rank.group, inout, ReduceOp::avg).wait();
      EXPECT_EQ(inout[numel - 1].item<float>(), 40'000.0f);
      const at::Tensor out = at::zeros({numel / 4}, at::kHalf);
      reduce_scatter(rank.group, out, inout, ReduceOp::avg).wait();
      EXPECT_EQ(out[0].item<float>(), 40'000.0f);
    }
    // 256 + 1 + 1 + 1 in bfloat16: each sum of two would be rounded down to 256.
    const at::Tensor small = at::full({4}, rank.group.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    all_reduce(rank.group, small).wait();
    EXPECT_EQ(small[0].item<float>(), 260.0f);
  });
}

}  // namespace
}  // namespace sherd::testing
