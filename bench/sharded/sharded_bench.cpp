// What do ShardedTensors cost between ranks of one host, and what does a rank remember of those of many ranks? The
// ranks are the processes that a launcher started, or threads (--threads N). Rank 0 prints a list of {"case", "bytes",
// "ranks", "seconds"}: the time of one call; with --metadata of {"case", "ranks", "tensors", "resident_bytes"}: what
// the memory of a process grows by that has done nothing else.

#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sherd/sherd.h"
#include "time_of.h"

namespace {

namespace sharded = sherd::sharded;

struct Settings {
  std::vector<int64_t> sizes;  // bytes of the whole tensor
  int tensors = 1000;          // built one after the other
  double seconds = 0.2;        // for each case
};

sharded::ShardingSpec chunks(int64_t dim, int64_t ranks, const char* device) {
  std::vector<sharded::RemoteDevice> placements;
  for (int64_t rank = 0; rank < ranks; ++rank) placements.emplace_back(rank, c10::Device(device));
  return sharded::ChunkShardingSpec(dim, std::move(placements));
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

nlohmann::json run_ranks(const sherd::World& world, const Settings& settings) {
  const auto group = world.group();
  const int64_t n = world.size();
  nlohmann::json rows = nlohmann::json::array();
  const auto add = [&](const std::string& name, int64_t bytes, const std::function<void()>& call) {
    rows.push_back(
        {{"case", name}, {"bytes", bytes}, {"ranks", n}, {"seconds", time_of(group, call, settings.seconds)}});
  };
  for (const int64_t bytes : settings.sizes) {
    int64_t side = 1;
    while (4 * side * side < bytes) side *= 2;
    const sherd::Dims size = {bytes / 4 / side, side};
    const auto x = sharded::zeros(chunks(0, n, "cpu"), size);
    std::optional<at::Tensor> out;
    if (world.rank() == 0) out = at::empty(size);
    add("gather", bytes, [&] { x.gather(0, out); });
    add("reshard, rows to columns", bytes, [&] { x.reshard(chunks(1, n, "cpu")); });
  }
  const at::Tensor part = at::zeros({8, 32});
  add(std::to_string(settings.tensors) + " from local shards", 0, [&] {
    for (int i = 0; i < settings.tensors; ++i) {
      const auto shard = sharded::Shard::from_tensor_and_offsets(part, {8 * world.rank(), 0}, world.rank());
      sharded::init_from_local_shards({shard}, {8 * n, 32});
    }
  });
  return rows;
}

// One rank of many that there are not. Its tensors have no data; each has a spec of its own, as tensors of a program
// do.
nlohmann::json remember(const Settings& settings) {
  constexpr int kRanks = 4096;
  const sherd::WorldScope scope(sherd::fake_world(0, kRanks));
  const auto make = [](int64_t i) { return sharded::empty(chunks(0, kRanks, "meta"), {kRanks * 8, i + 1}); };
  std::vector<sharded::ShardedTensor> kept = {make(0)};  // what is made once, whatever the number of tensors
  kept.reserve(static_cast<size_t>(settings.tensors) + 1);
  const int64_t before = resident_bytes();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < settings.tensors; ++i) kept.push_back(make(i));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {{"case", "metadata"},
          {"ranks", kRanks},
          {"tensors", settings.tensors},
          {"seconds", seconds},
          {"resident_bytes", resident_bytes() - before}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What ShardedTensors cost."};
  Settings settings{.sizes = {64 << 20}};
  int threads = 0;
  bool metadata = false;
  app.add_option("--sizes", settings.sizes, "bytes of the whole tensor")->delimiter(',');
  app.add_option("--tensors", settings.tensors, "how many small ones are built");
  app.add_option("--seconds", settings.seconds, "time for each case");
  app.add_option("--threads", threads, "ranks as threads, instead of the launcher's processes");
  app.add_flag("--metadata", metadata, "one process: what a rank of 4,096 remembers");
  CLI11_PARSE(app, argc, argv);
  const auto run = [&](const sherd::World& world) {
    const nlohmann::json rows = run_ranks(world, settings);
    if (world.rank() == 0) std::printf("%s\n", rows.dump().c_str());
  };
  if (metadata) {
    std::printf("%s\n", nlohmann::json::array({remember(settings)}).dump().c_str());
  } else if (threads > 0) {
    sherd::spawn(threads, run);
  } else {
    run(sherd::init());
  }
}
