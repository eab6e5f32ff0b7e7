// What does it cost to start 8 threads as ranks with a 2x2x2 mesh?
// To reach: under 5 ms. Tests start thousands of such worlds.

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "sherd/collectives.h"
#include "sherd/device_mesh.h"
#include "sherd/world.h"

namespace {

using namespace sherd;

void start_and_mesh(benchmark::State& state, const WorldOptions& options) {
  for (auto _ : state) {
    spawn(
        8,
        [](World&) {
          benchmark::DoNotOptimize(init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"}));
        },
        options);
  }
}
BENCHMARK_CAPTURE(start_and_mesh, threads, WorldOptions{})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(start_and_mesh, gloo, WorldOptions{.backend = "gloo"})->Unit(benchmark::kMillisecond)->UseRealTime();

// The same, and every axis used once: this is when backends are made.
void start_and_talk(benchmark::State& state, const WorldOptions& options) {
  for (auto _ : state) {
    spawn(
        8,
        [](World&) {
          const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
          for (const Group& group : mesh.groups()) barrier(group);
        },
        options);
  }
}
BENCHMARK_CAPTURE(start_and_talk, threads, WorldOptions{})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(start_and_talk, gloo, WorldOptions{.backend = "gloo"})->Unit(benchmark::kMillisecond)->UseRealTime();

// A mesh that exists already, made again and sliced: what a library pays that asks for its axis each time.
void slice_again(benchmark::State& state) {
  const WorldScope scope(fake_world(5, 8));
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
  const DeviceMesh kept = mesh["tp"];
  for (auto _ : state) benchmark::DoNotOptimize(mesh["tp"]);
}
BENCHMARK(slice_again);

}  // namespace
