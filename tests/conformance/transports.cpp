// The transports that the conformance suite is run on.

#include "comm/transports.h"

#include <ATen/Context.h>

#include <cstdio>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "conformance/over_processes.h"
#include "conformance/transport.h"

namespace sherd::testing {
namespace {

INSTANTIATE_TRANSPORT_TESTS(Threads, (Transport{.run = over_spawn({}), .sizes = {1, 2, 3, 4, 8}}));
INSTANTIATE_TRANSPORT_TESTS(CheckedThreads, (Transport{.run = over_spawn({.check = true}), .sizes = {2, 3}}));
INSTANTIATE_TRANSPORT_TESTS(Gloo,
                            (Transport{.run = over_spawn({.backend = "gloo"}), .sizes = {2, 3, 4}, .lists = false}));
INSTANTIATE_TRANSPORT_TESTS(
    CheckedGloo, (Transport{.run = over_spawn({.backend = "gloo", .check = true}), .sizes = {2, 3}, .lists = false}));

INSTANTIATE_TRANSPORT_TESTS(Shm, (Transport{.run = over_spawn({.backend = "shm"}), .sizes = {2, 3, 8}}));
INSTANTIATE_TRANSPORT_TESTS(CheckedShm,
                            (Transport{.run = over_spawn({.backend = "shm", .check = true}), .sizes = {2}}));
INSTANTIATE_TRANSPORT_TESTS(ShmProcesses, (Transport{.run = over_processes({.backend = "shm"}), .sizes = {2, 4}}));
// What init() chooses by itself.
INSTANTIATE_TRANSPORT_TESTS(AutoProcesses, (Transport{.run = over_processes({}), .sizes = {3}}));

int cuda_devices() { return at::hasCUDA() ? static_cast<int>(torch::cuda::device_count()) : 0; }

// A wrapped backend rather than a group of one, which would never reach NCCL.
void over_nccl(int n, const RankBody& body) {
  const auto run = [&](World& world) {
    const auto backend = detail::make_nccl(
        {.store = c10::make_intrusive<c10d::HashStore>(), .rank = world.rank(), .size = n, .timeout = world.timeout()});
    Rank rank{world, Group::from_backend(backend, {0}, c10::DeviceType::CUDA), at::TensorOptions(at::kCUDA)};
    body(rank);
  };
  spawn(n, run);
}

std::optional<Transport> on_gpus(const char* what, const Transport& transport) {
  if (cuda_devices() > 0) return transport;
  static std::string said;  // once for each, though every suite asks
  if (said != what) std::printf("no CUDA device here: %s not tested\n", what);
  said = what;
  return std::nullopt;
}

INSTANTIATE_TRANSPORT_TESTS(ThreadsOnOneGpu, on_gpus("threads on one GPU are",
                                                     {.run = over_spawn({}, "cuda:0"), .sizes = {1, 2, 3, 4, 8}}));
INSTANTIATE_TRANSPORT_TESTS(Nccl, on_gpus("NCCL is",
                                          {.run = over_nccl, .sizes = {1}, .makes_groups = false, .lists = false}));

}  // namespace
}  // namespace sherd::testing
