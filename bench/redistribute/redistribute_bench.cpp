// What does a redistribution cost between ranks of one host? The ranks are the processes that a launcher started, or
// threads (--threads N). Rank 0 prints a list of {"case", "seconds", "bytes_moved", "bytes_needed", "peak_bytes"}: the
// time of one call; what a rank receives, on average, and must receive; the memory that the call takes, result
// included. With --overlap: does computing go on while data move? {"compute_s", "move_s", "both_s"} of
// redistribute_async and matrix products, each alone and together.

#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "sherd/sherd.h"
#include "time_of.h"

namespace {

using sherd::Group;
using sherd::Placements;
using sherd::Replicate;
using sherd::Shard;
using sherd::StridedShard;

struct Settings {
  std::vector<int64_t> sizes;  // bytes of the whole tensor
  double seconds = 0.2;        // for each case
  std::string device = "cpu";  // of --overlap
};

class MemoryMeter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0;
  int64_t peak = 0;
};

int64_t average(const Group& group, int64_t value) {
  const at::Tensor total = at::full({1}, value, at::kLong);
  sherd::all_reduce(group, total).wait();
  return total.item<int64_t>() / group.size();
}

// The elements that this rank wants and does not have.
int64_t elements_missing(const at::Tensor& from, const at::Tensor& to) {
  const auto here = *sherd::mesh_of(to).coordinate();
  int64_t missing = sherd::to_local(to).numel();
  for (const sherd::Box& wanted : sherd::local_boxes(sherd::layout_of(to), here)) {
    for (const sherd::Box& held : sherd::local_boxes(sherd::layout_of(from), here)) {
      if (const auto common = sherd::intersect(wanted, held)) missing -= sherd::numel(*common);
    }
  }
  return missing;
}

class Bench {
 public:
  Bench(const sherd::World& world, const Settings& settings)
      : group_(world.group()), settings_(settings), n_(world.size()) {}

  nlohmann::json run() {
    const auto line = sherd::init_device_mesh("cpu", {n_});
    for (const int64_t bytes : settings_.sizes) {
      const int64_t side = side_of(bytes);
      const int64_t rows = bytes / 4 / side;
      measure("S(0) to S(1)", line, {rows, side}, {Shard(0)}, {Shard(1)}, bytes);
      measure("S(0) to S(1), uneven", line, {rows - 1, side - 3}, {Shard(0)}, {Shard(1)}, bytes);
      measure("S(0) to R", line, {rows, side}, {Shard(0)}, {Replicate()}, bytes);
      measure("S(1) to R", line, {rows, side}, {Shard(1)}, {Replicate()}, bytes);
      measure("strided to S(1)", line, {rows, side}, {StridedShard(0, 2)}, {Shard(1)}, bytes);
      if (n_ < 4) continue;
      const auto grid = sherd::init_device_mesh("cpu", {2, n_ / 2});
      measure("(S(0), S(1)) to (S(1), S(0))", grid, {rows, side}, {Shard(0), Shard(1)}, {Shard(1), Shard(0)}, bytes);
      measure("(S(0), S(0)) to (R, S(1))", grid, {rows, side}, {Shard(0), Shard(0)}, {Replicate(), Shard(1)}, bytes);
    }
    many(line);
    return rows_;
  }

  nlohmann::json run_overlap() {
    for (const int64_t bytes : settings_.sizes) rows_.push_back(overlap(bytes));
    return rows_;
  }

 private:
  // Of a square tensor, or one with fewer rows.
  static int64_t side_of(int64_t bytes) {
    int64_t side = 1;
    while (4 * side * side < bytes) side *= 2;
    return side;
  }

  void measure(const std::string& name, const sherd::DeviceMesh& mesh, at::IntArrayRef shape, const Placements& from,
               const Placements& to, int64_t bytes) {
    const at::Tensor x = sherd::zeros(shape, mesh, from);
    add(name, bytes, [&] { return std::vector<at::Tensor>{sherd::redistribute(x, to)}; }, {x});
  }

  // A thousand small tensors in one call.
  void many(const sherd::DeviceMesh& mesh) {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 1000; ++i) tensors.push_back(sherd::zeros({32, 32}, mesh, {Shard(0)}));
    const std::vector<Placements> to(tensors.size(), {Shard(1)});
    add(
        "1000 of 4 KiB, S(0) to S(1)", 1000 * 4096, [&] { return sherd::redistribute(tensors, to); }, tensors);
  }

  // Products that take about as long as the move, on the device's own stream; and the move beside them.
  nlohmann::json overlap(int64_t bytes) const {
    const auto mesh = sherd::init_device_mesh(settings_.device, {n_});
    const bool on_gpu = settings_.device != "cpu";
    const auto options = at::TensorOptions(at::Device(settings_.device));
    // Ranks that are threads of one process would wait for each other's products in the default stream.
    std::optional<c10::StreamGuard> own;
    if (on_gpu)
      own.emplace(
          c10::impl::VirtualGuardImpl(options.device().type()).getStreamFromGlobalPool({options.device().type(), 0}));
    const int64_t side = side_of(bytes);
    const at::Tensor from = sherd::ones({bytes / 4 / side, side}, mesh, {Shard(0)}, options);
    const at::Tensor factor = at::full({1024, 1024}, 1.0 / 1024, options);
    const auto time = [&](const std::function<void()>& call) {
      const auto finished = [&] {
        call();
        if (on_gpu) torch::cuda::synchronize();
      };
      return time_of(group_, finished, settings_.seconds);
    };
    const auto start = [&] { return sherd::redistribute_async(from, {Shard(1)}); };
    const auto compute = [&](int64_t products) {
      at::Tensor value = factor;
      for (int64_t i = 0; i < products; ++i) value = value.mm(factor);
    };
    const double move = time([&] { start().wait(); });
    const double ten = time([&] { compute(10); });
    const at::Tensor products = at::full({1}, std::max<int64_t>(1, static_cast<int64_t>(10 * move / ten)), at::kLong);
    sherd::broadcast(group_, products, 0).wait();
    const auto count = products.item<int64_t>();
    const double alone = time([&] { compute(count); });
    const double both = time([&] {
      sherd::PendingTensor pending = start();
      compute(count);
      pending.wait();
    });
    return {{"case", "overlap"},  {"bytes", bytes}, {"ranks", n_},
            {"compute_s", alone}, {"move_s", move}, {"both_s", both}};
  }

  void add(const std::string& name, int64_t bytes, const std::function<std::vector<at::Tensor>()>& call,
           const std::vector<at::Tensor>& from) {
    int64_t missing = 0;
    int64_t moved = 0;
    const auto meter = std::make_shared<MemoryMeter>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
      const sherd::CommRecorder recorder;
      const auto results = call();
      moved = recorder.bytes();
      for (size_t i = 0; i < results.size(); ++i) missing += elements_missing(from[i], results[i]) * 4;
    }
    const double seconds = time_of(
        group_, [&] { call(); }, settings_.seconds);
    rows_.push_back({{"case", name},
                     {"bytes", bytes},
                     {"ranks", n_},
                     {"seconds", seconds},
                     {"bytes_moved", average(group_, moved)},
                     {"bytes_needed", average(group_, missing)},
                     {"peak_bytes", meter->peak}});
  }

  const Group group_;
  const Settings& settings_;
  const int64_t n_;
  nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What a redistribution costs between ranks of one host."};
  Settings settings{.sizes = {4 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20}};
  int threads = 0;
  std::string backend;
  app.add_option("--sizes", settings.sizes, "bytes of the whole tensor")->delimiter(',');
  app.add_option("--seconds", settings.seconds, "time for each case");
  app.add_option("--threads", threads, "ranks as threads, instead of the launcher's processes");
  app.add_option("--backend", backend, "instead of what sherd chooses");
  app.add_option("--device", settings.device, "where tensors of --overlap are: cpu or cuda");
  bool overlap = false;
  app.add_flag("--overlap", overlap, "does computing go on while data move?");
  CLI11_PARSE(app, argc, argv);
  const auto run = [&](const sherd::World& world) {
    Bench bench(world, settings);
    const nlohmann::json rows = overlap ? bench.run_overlap() : bench.run();
    if (world.rank() == 0) std::printf("%s\n", rows.dump().c_str());
  };
  if (threads > 0) {
    sherd::spawn(threads, run, {.backend = backend});
  } else {
    run(sherd::init({.backend = backend}));
  }
}
