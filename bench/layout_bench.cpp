// What do the boxes of one rank among 4,096 cost, for 10^8 rows and 3 mesh axes (16 x 16 x 16)?
// To reach: under 2 microseconds. The answer may depend on axes, dims and splits, never on ranks or rows.

#include <benchmark/benchmark.h>

#include "sherd/layout.h"
#include "sherd/picture.h"

namespace {

using namespace sherd;

Layout layout_of(const char* tensor) {
  const Mesh mesh({{"a", 16}, {"b", 16}, {"c", 16}});
  TensorText text = parse_tensor(tensor, mesh);
  return {mesh, text.shape, text.placements};
}

constexpr const char* kOneDim = "f32[100000000@a@b@c, 64]";
constexpr const char* kThreeDims = "f32[100000000@a, 4096@b, 64@c]";
constexpr const char* kStrided = "f32[100000000@a(split=16)@b@c, 64]";

// Another rank each time: every rank of the mesh in turn.
template <class Ask>
void for_each_rank(benchmark::State& state, const char* tensor, Ask ask) {
  const Layout layout = layout_of(tensor);
  std::vector<Dims> coordinates;
  for (int64_t i = 0; i < layout.mesh.size(); ++i) coordinates.push_back(layout.mesh.coordinate_at(i));
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ask(layout, coordinates[next]));
    next = next + 1 == coordinates.size() ? 0 : next + 1;
  }
  state.SetLabel(tensor);
}

void boxes_of_one_rank(benchmark::State& state, const char* tensor) {
  for_each_rank(state, tensor, [](const Layout& layout, const Dims& at) { return local_boxes(layout, at); });
}
BENCHMARK_CAPTURE(boxes_of_one_rank, one_dim, kOneDim);
BENCHMARK_CAPTURE(boxes_of_one_rank, three_dims, kThreeDims);
BENCHMARK_CAPTURE(boxes_of_one_rank, strided, kStrided);

void shape_of_one_rank(benchmark::State& state, const char* tensor) {
  for_each_rank(state, tensor, [](const Layout& layout, const Dims& at) { return local_shape(layout, at); });
}
BENCHMARK_CAPTURE(shape_of_one_rank, one_dim, kOneDim);
BENCHMARK_CAPTURE(shape_of_one_rank, strided, kStrided);

void offset_of_one_rank(benchmark::State& state, const char* tensor) {
  for_each_rank(state, tensor, [](const Layout& layout, const Dims& at) { return local_offset(layout, at); });
}
BENCHMARK_CAPTURE(offset_of_one_rank, strided, kStrided);

void holder_of_one_row(benchmark::State& state, const char* tensor) {
  const Layout layout = layout_of(tensor);
  int64_t row = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(holder_of(layout, 0, row));
    row = (row + 7'919'317) % layout.shape[0];
  }
}
BENCHMARK_CAPTURE(holder_of_one_row, strided, kStrided);

void check_of_placements(benchmark::State& state) {
  const Layout layout = layout_of(kThreeDims);
  for (auto _ : state)
    benchmark::DoNotOptimize(checked_placements("bench", layout.mesh, layout.shape, layout.placements));
}
BENCHMARK(check_of_placements);

// All boxes of all ranks, checked to tile the tensor.
void tiling_of_all_ranks(benchmark::State& state, const char* tensor) {
  const Layout layout = layout_of(tensor);
  std::vector<Box> boxes;
  for (int64_t i = 0; i < layout.mesh.size(); ++i)
    for (Box& box : local_boxes(layout, layout.mesh.coordinate_at(i))) boxes.push_back(std::move(box));
  for (auto _ : state) benchmark::DoNotOptimize(find_tiling_fault(boxes, layout.shape));
  state.counters["boxes"] = static_cast<double>(boxes.size());
}
BENCHMARK_CAPTURE(tiling_of_all_ranks, one_dim, kOneDim)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tiling_of_all_ranks, three_dims, kThreeDims)->Unit(benchmark::kMillisecond);

void picture_of_4096_ranks(benchmark::State& state) {
  const Layout layout = layout_of(kOneDim);
  for (auto _ : state) benchmark::DoNotOptimize(draw_text(layout));
}
BENCHMARK(picture_of_4096_ranks)->Unit(benchmark::kMicrosecond);

}  // namespace
