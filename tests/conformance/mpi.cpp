// The conformance suite over MPI: ranks are the processes that mpirun starts, and all run the same tests. A test for
// another number of ranks is left to another run.

#include <gmock/gmock.h>

#include <cmath>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/transports.h"
#include "comm/world_state.h"
#include "conformance/transport.h"
#include "sherd/dtensor.h"
#include "sherd/redistribute.h"

namespace sherd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

World this_world() { return init({.backend = "mpi", .timeout = std::chrono::seconds(60)}); }

void over_mpi(int n, const RankBody& body) {
  World world = this_world();
  if (n != world.size()) GTEST_SKIP() << "for mpirun -n " << n;
  Rank rank{world, world.group(), at::TensorOptions(at::kCPU)};
  body(rank);
}

// A group of all ranks, apart from the world's.
Group group_with(std::chrono::milliseconds timeout, int64_t most_at_once) {
  const World world = this_world();
  static int made = 0;  // every rank makes them in the same order
  const std::string key = "group " + std::to_string(made++);
  const std::vector<int64_t> ranks = world.group().ranks();
  const detail::Meeting meeting{.store = c10::make_intrusive<c10d::PrefixStore>(key, world.state()->link().store),
                                .rank = world.rank(),
                                .size = world.size(),
                                .timeout = timeout,
                                .ranks = ranks};
  return Group::from_backend(detail::make_mpi(meeting, most_at_once), ranks, c10::DeviceType::CPU);
}

// As calls of more bytes than MPI can count are made: in parts, here of a few kilobytes each.
void over_mpi_in_parts(int, const RankBody& body) {
  const World world = this_world();
  Rank rank{world, group_with(world.timeout(), 5000), at::TensorOptions(at::kCPU)};
  body(rank);
}

INSTANTIATE_TRANSPORT_TESTS(
    Mpi, (Transport{.run = over_mpi, .sizes = {this_world().size()}, .other = "cpu:gloo", .third = "gloo"}));
INSTANTIATE_TRANSPORT_TESTS(MpiInParts,
                            (Transport{
                                .run = over_mpi_in_parts, .sizes = {this_world().size()}, .makes_groups = false}));

TEST(MpiTest, SixteenBitFloatsAreSummedIn32Bits) {
  const World world = this_world();
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    // Each 1 alone would be lost in a sum of 16 bits.
    const double large = dtype == at::kHalf ? 2048 : 256;
    const at::Tensor sum = at::full({3}, world.rank() == 0 ? large : 1, dtype);
    all_reduce(world.group(), sum).wait();
    const at::Tensor expected = at::full({3}, large + world.size() - 1, at::kFloat).to(dtype);
    EXPECT_TRUE(at::equal(sum, expected)) << sum;
  }
}

TEST(MpiTest, ExtremesKeepNaNFromWhicheverRank) {
  const World world = this_world();
  for (int who = 0; who < world.size(); ++who) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf}) {
      for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
        const at::Tensor numbers = at::full({2}, world.rank(), dtype);
        if (world.rank() == who) numbers[0] = std::nan("");
        all_reduce(world.group(), numbers, op).wait();
        EXPECT_TRUE(numbers[0].isnan().item<bool>());
        EXPECT_EQ(numbers[1].item<double>(), op == ReduceOp::min ? 0 : world.size() - 1);
      }
    }
  }
}

TEST(MpiTest, ACallThatNobodyWaitsForGoesOn) {
  const World world = this_world();
  const at::Tensor sum = at::ones({100'000});
  Work work = all_reduce(world.group(), sum);
  // The ranks now meet outside MPI, where no rank waits for the call. Those that wait first need the others' help.
  const Group outside = world.group(world.group().ranks(), "gloo");
  if (world.rank() % 2 == 0) work.wait();
  barrier(outside);
  work.wait();
  EXPECT_EQ(sum[99'999].item<float>(), static_cast<float>(world.size()));
}

TEST(MpiTest, ARankThatDoesNotComeIsNotWaitedForLongerThanTheTimeout) {
  const World world = this_world();
  if (world.size() == 1) GTEST_SKIP() << "for mpirun -n 2 and more";
  const Group group = group_with(std::chrono::milliseconds(300), int64_t{1} << 30);
  const Group outside = world.group(world.group().ranks(), "gloo");
  const at::Tensor sum = at::ones({4});
  if (world.rank() == 0) {
    barrier(outside);
    group.backend(c10::DeviceType::CPU)->barrier();  // late: the others' call is over, for MPI to end in good order
    return;
  }
  std::string message;
  try {
    barrier(group);
  } catch (const c10::DistBackendError& error) {
    message = error.what_without_backtrace();
  }
  EXPECT_EQ(message,
            "barrier: the transport broke\n  group: " + group.name() +
                "\n  cause: MPI: the other ranks did not come within 0.3 s\n  help: see what the transport says");
  barrier(outside);
}

TEST(MpiTest, AMessageOfAnotherSizeIsRefused) {
  const World world = this_world();
  if (world.rank() > 1 || world.size() == 1) return;
  const Group pair = world.group({0, 1});
  if (world.rank() == 0) {
    send(pair, at::ones({3}), 1).wait();
    return;
  }
  std::string message;
  try {
    receive(pair, at::ones({4}), 0).wait();
  } catch (const c10::DistBackendError& error) {
    message = error.what_without_backtrace();
  }
  EXPECT_EQ(message,
            "receive: the tensor sent does not fit the tensor given\n  sent: 12 bytes\n  given: 16 bytes\n"
            "  help: receive into a tensor of the sender's dtype and size");
}

// Their calls fit together, and nobody asked for them to be compared.
TEST(MpiTest, RanksThatMoveToDifferentPlacementsLearnSo) {
  const World world = this_world();
  if (world.size() == 1) GTEST_SKIP() << "for mpirun -n 2 and more";
  const int64_t n = world.size();
  const DeviceMesh mesh = init_device_mesh("cpu", {n});
  const at::Tensor cube = at::ones({n, n, n});
  const at::Tensor x = distribute_tensor(cube, mesh, {Shard(0)});
  std::string message;
  try {
    redistribute(x, {Shard(world.rank() == 0 ? 1 : 2)});
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  }
  const char* problem = world.checks_calls() ? "redistribute: the ranks have different plans\n  rank 0: "
                                             : "all_to_all: ranks call different things\n  rank 0: redistribute ";
  EXPECT_THAT(message, AllOf(HasSubstr(problem), HasSubstr(" -> (S(1)) on "), HasSubstr(" -> (S(2)) on ")));
  EXPECT_TRUE(full_tensor(redistribute(x, {Shard(1)})).equal(cube));
}

// What rank 0 does not print.
class FailuresOfThisRank : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", this_world().rank(), result.file_name(), result.line_number(),
                 result.message());
  }
};

}  // namespace
}  // namespace sherd::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (sherd::testing::this_world().rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new sherd::testing::FailuresOfThisRank);
  }
  return RUN_ALL_TESTS();
}
