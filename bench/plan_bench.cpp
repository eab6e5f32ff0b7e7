// What does a new redistribution plan cost, its text included? For three axes at most 100 microseconds are allowed, on
// 16,384 ranks as on eight. A plan that was made before is found in the library's cache, which this does not link.

#include <benchmark/benchmark.h>

#include "sherd/explain.h"

namespace {

using namespace sherd;

struct Case {
  const char* mesh;
  const char* from;
  const char* to;
};

const Case kCases[] = {
    {"[tp=8]", "f32[4096@tp, 4096]", "f32[4096, 4096@tp]"},
    {"[dp=2, tp=4]", "f32[4096@dp, 4096] P(sum)@tp", "f32[4096@dp, 4096@tp]"},
    {"[pp=2, dp=2, tp=2]", "f32[4096@pp, 4096@dp]", "f32[4096@tp, 4096@pp]"},
    {"[pp=2, dp=2, tp=2]", "f32[4096@dp, 4096] P(sum)@pp P(sum)@tp", "f32[4096@pp, 4096]"},
    {"[pp=4, dp=8, tp=8]", "f32[4096@pp, 4096] P(sum)@tp", "f32[4096@dp, 4096@pp]"},
    {"[pp=2, dp=2, tp=2]", "f32[64@pp, 64@dp]", "f32[64@tp, 64@pp]"},
    {"[pp=4, dp=8, tp=8]", "f32[64@pp@tp, 64@dp]", "f32[64@dp, 64@pp@tp]"},
    {"[pod=2, pp=2, dp=2, tp=2]", "f32[4096@pp, 4096@tp] P(sum)@pod P(sum)@dp", "f32[4096@pod@tp, 4096]"},
    // Several axes talk: one call, or one along each.
    {"[pp=4, dp=8, tp=8]", "f32[4096@pp@dp, 4096@tp]", "f32[4096, 4096]"},
    {"[pp=4, dp=8, tp=8]", "f32[4096, 4096] P(sum)@pp P(sum)@dp P(sum)@tp", "f32[4096, 4096]"},
    {"[pp=2, dp=2, tp=2]", "f32[64, 64] P(sum)@pp P(sum)@dp P(sum)@tp", "f32[64, 64]"},
    // Strided and ragged cuts.
    {"[pp=2, dp=2, tp=2]", "f32[4096@pp(split=2)@dp, 4096@tp]", "f32[4096@dp, 4096@pp@tp]"},
    {"[pp=2, dp=2, tp=2]", "f32[4096@pp(cuts=0:1000:4096), 4096@dp]", "f32[4096@tp, 4096@pp(cuts=0:3000:4096)]"},
    // Rows that are kept for the target on a large mesh.
    {"[a=16, b=32, c=32]", "f32[1048576@c, 4096] P(sum)@a", "f32[1048576@a@b@c, 4096]"},
};

void plan_new(benchmark::State& state) {
  const Case& given = kCases[state.range(0)];
  const Mesh mesh = parse_mesh(given.mesh);
  const TensorText from = parse_tensor(given.from, mesh);
  const TensorText to = parse_tensor(given.to, mesh);
  for (auto _ : state) benchmark::DoNotOptimize(explain_redistribution(from, to, mesh));
  state.SetLabel(std::string(given.mesh) + " " + given.from + " to " + given.to);
}
BENCHMARK(plan_new)->DenseRange(0, std::size(kCases) - 1)->Unit(benchmark::kMicrosecond);

}  // namespace
