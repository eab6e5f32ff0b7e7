// What does a new redistribution plan cost? For three axes at most 100 microseconds are allowed; a plan that was made
// before is found in the cache.

#include <benchmark/benchmark.h>

#include "plan/redistribute.h"
#include "plan/transfer.h"

namespace sherd::plan {
namespace {

struct Case {
  const char* mesh;
  Dims shape;
  const char* from;
  const char* to;
};

const Case kCases[] = {
    {"[tp=8]", {4096, 4096}, "(S(0))", "(S(1))"},
    {"[dp=2, tp=4]", {4096, 4096}, "(S(0), P(sum))", "(S(0), S(1))"},
    {"[pp=2, dp=2, tp=2]", {4096, 4096}, "(S(0), S(1), R)", "(S(1), R, S(0))"},
    {"[pp=2, dp=2, tp=2]", {4096, 4096}, "(P(sum), S(0), P(sum))", "(S(0), R, R)"},
    {"[pp=4, dp=8, tp=8]", {4096, 4096}, "(S(0), R, P(sum))", "(S(1), S(0), R)"},
    {"[pp=2, dp=2, tp=2]", {64, 64}, "(S(0), S(1), R)", "(S(1), R, S(0))"},
    {"[pp=4, dp=8, tp=8]", {64, 64}, "(S(0), S(1), S(0))", "(S(1), S(0), S(1))"},
    {"[pod=2, pp=2, dp=2, tp=2]", {4096, 4096}, "(P(sum), S(0), P(sum), S(1))", "(S(0), R, R, S(0))"},
};

void plan_new(benchmark::State& state) {
  const Case& given = kCases[state.range(0)];
  const Mesh mesh = parse_mesh(given.mesh);
  const Placements from = parse_placements(given.from);
  const Placements to = parse_placements(given.to);
  for (auto _ : state) benchmark::DoNotOptimize(plan_redistribution(mesh, given.shape, 4, from, to));
  state.SetLabel(std::string(given.mesh) + " " + to_string(given.shape) + " " + given.from + " to " + given.to);
}
BENCHMARK(plan_new)->DenseRange(0, std::size(kCases) - 1)->Unit(benchmark::kMicrosecond);

// One rank's transfers between two meshes of this many ranks.
void transfers_of_a_rank(benchmark::State& state) {
  const int64_t side = state.range(0);
  const Mesh square({{"a", side}, {"b", side}});
  const Mesh flat({{"c", side * side}});
  const Layout from{square, {side * side * 4, 4096}, {Shard(0), Shard(1)}};
  const Layout to{flat, {side * side * 4, 4096}, {Shard(0)}};
  for (auto _ : state) benchmark::DoNotOptimize(transfers(from, to, side + 1));
  state.SetLabel(std::to_string(side * side) + " ranks");
}
BENCHMARK(transfers_of_a_rank)->Arg(4)->Arg(16)->Arg(64)->Arg(128)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sherd::plan
