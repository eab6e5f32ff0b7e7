// What do checkpoints cost? The ranks are the processes that a launcher started, or threads (--threads N); rank 0
// prints a list of {"case", "ranks", "seconds", "cpu_seconds"}, of one call each: run.py repeats them. The processors'
// time is that of all ranks together. "save_peak_extra_mib" has "mib" instead, the most that a rank's memory grew by.
// Cases are done in the order in which they are named:
//
//   save, load, reshard     large tensors, in rows; loaded in rows, and in columns
//   save_small, load_small  many small ones
//   async                   how long save_async keeps its caller, the first time and later
//   write, read, copy       the same bytes by plain calls of several sizes: "write 256", of 256 KiB
//
// --plan N: one process, as the first rank of N: who writes what, and the metadata of the checkpoint.

#include <sys/resource.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "plain_io.h"
#include "sherd/sherd.h"

namespace {

using sherd::Shard;
using sherd::StateDict;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string folder;
  std::vector<std::string> cases;
  int64_t tensors = 64;  // of side x side float32
  int64_t side = 2048;
  int64_t small = 2000;  // of 32 x 32
  bool cold = false;     // loads find nothing in the kernel's memory
};

constexpr int64_t kSmallSide = 32;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// What element [row, column] of the tensor `number` is, for a box of them.
at::Tensor elements(int64_t number, const sherd::Box& box, int64_t columns) {
  const at::Tensor rows = at::arange(box.offset[0], box.offset[0] + box.size[0], at::kFloat);
  const at::Tensor others = at::arange(box.offset[1], box.offset[1] + box.size[1], at::kFloat);
  return rows.unsqueeze(1) * static_cast<double>(columns) + others + static_cast<double>(number);
}

class Bench {
 public:
  Bench(const sherd::World& world, const Settings& settings)
      : settings_(settings), group_(world.group()), mesh_(sherd::init_device_mesh("cpu", {world.size()})) {}

  nlohmann::json run() {
    const std::map<std::string, std::function<void()>> known = {
        {"save", [&] { save("save", "large", settings_.tensors, settings_.side); }},
        {"load", [&] { load("load", "large", settings_.tensors, settings_.side, 0); }},
        {"reshard", [&] { load("reshard", "large", settings_.tensors, settings_.side, 1); }},
        {"save_small", [&] { save("save_small", "small", settings_.small, kSmallSide); }},
        {"load_small", [&] { load("load_small", "small", settings_.small, kSmallSide, 0); }},
        {"async", [&] { save_async(); }},
        {"write", [&] { plain("write"); }},
        {"read", [&] { plain("read"); }},
        {"copy", [&] { copy(); }},
    };
    for (const std::string& name : settings_.cases) known.at(name)();
    return rows_;
  }

 private:
  StateDict state(int64_t tensors, int64_t side, int dim, bool filled) const {
    StateDict state;
    for (int64_t i = 0; i < tensors; ++i) {
      // Ones, not zeros or nothing: memory that was never written to is not there yet.
      const at::Tensor tensor = sherd::ones({side, side}, mesh_, {Shard(dim)});
      if (filled) sherd::to_local(tensor).copy_(elements(i, box_of(tensor), side));
      state["layers." + std::to_string(i) + ".weight"] = tensor;
    }
    return state;
  }

  sherd::Box box_of(const at::Tensor& tensor) const {
    return sherd::local_boxes(sherd::layout_of(tensor), *mesh_.coordinate()).front();
  }

  // From the moment when all ranks begin to that when the last is done.
  void time(const std::string& name, const std::function<void()>& call) {
    sherd::barrier(group_);
    const auto begin = Clock::now();
    const double before = processor_seconds();
    call();
    const double used = processor_seconds() - before;
    sherd::barrier(group_);
    add(name, seconds_since(begin), used);
  }

  void add(const std::string& name, double seconds, double used) {
    rows_.push_back({{"case", name},
                     {"ranks", group_.size()},
                     {"seconds", seconds},
                     {"cpu_seconds", of_all(used, sherd::ReduceOp::sum)}});
  }

  double of_all(double value, sherd::ReduceOp op) const {
    const at::Tensor all = at::full({1}, value, at::kDouble);
    sherd::all_reduce(group_, all, op).wait();
    return all.item<double>();
  }

  std::string path(const std::string& name) const { return settings_.folder + "/" + name; }

  void by_the_first(const std::function<void()>& call) const {
    if (group_.rank() == 0) call();
    sherd::barrier(group_);
  }

  void save(const std::string& name, const std::string& folder, int64_t tensors, int64_t side) {
    const StateDict saved = state(tensors, side, 0, true);
    by_the_first([&] { std::filesystem::remove_all(path(folder)); });
    forget_most_memory();
    const int64_t before = memory_now();
    time(name, [&] { sherd::save(saved, path(folder)); });
    const double extra = of_all(static_cast<double>(most_memory() - before) / (1 << 20), sherd::ReduceOp::max);
    if (name == "save") {
      rows_.push_back({{"case", "save_peak_extra_mib"}, {"ranks", group_.size()}, {"mib", extra}});
    }
  }

  void load(const std::string& name, const std::string& folder, int64_t tensors, int64_t side, int dim) {
    StateDict loaded = state(tensors, side, dim, false);
    forget();
    time(name, [&] { sherd::load(loaded, path(folder)); });
    for (const int64_t i : {int64_t{0}, tensors - 1}) {
      const at::Tensor& tensor = *loaded.at("layers." + std::to_string(i) + ".weight").tensor();
      TORCH_CHECK(at::equal(sherd::to_local(tensor), elements(i, box_of(tensor), side)),
                  "what was loaded is not what was saved: tensor ", i);
    }
  }

  void save_async() {
    const StateDict saved = state(settings_.tensors, settings_.side, 0, true);
    for (const char* name : {"async first", "async"}) {
      by_the_first([&] { std::filesystem::remove_all(path("async")); });
      const auto begin = Clock::now();
      const double before = processor_seconds();
      sherd::SaveFuture future = sherd::save_async(saved, path("async"));
      const double seconds = seconds_since(begin);
      const double used = processor_seconds() - before;
      add(name, of_all(seconds, sherd::ReduceOp::max), used);
      time(std::string(name) + ", to the end", [&] { future.wait(); });
    }
    by_the_first([&] { std::filesystem::remove_all(path("async")); });
  }

  void forget() const {
    by_the_first([&] {
      if (settings_.cold) TORCH_CHECK(forget_cached_files(), "--cold: this process may not drop caches");
    });
  }

  at::Tensor own_bytes() const {
    return at::ones({settings_.tensors * settings_.side * settings_.side / group_.size()});
  }

  void plain(const std::string& way) {
    const at::Tensor memory = own_bytes();
    const std::span bytes(static_cast<std::byte*>(memory.data_ptr()), memory.nbytes());
    const std::string file = path("plain-" + std::to_string(group_.rank()));
    for (const int64_t step : {256, 1024, 8192}) {
      const auto size = static_cast<size_t>(step) << 10;
      std::filesystem::remove(file);
      if (way == "read") {
        plain_write(file, bytes, size);  // the first time that a file is read is slower, and loads are such
        forget();
      }
      time(way + " " + std::to_string(step), [&] {
        if (way == "write") {
          plain_write(file, bytes, size);
        } else {
          plain_read(file, bytes, size);
        }
      });
    }
    if (way == "read") std::filesystem::remove(file);
  }

  void copy() {
    const at::Tensor from = own_bytes();
    const at::Tensor into = own_bytes();
    time("copy", [&] { std::memcpy(into.data_ptr(), from.const_data_ptr(), from.nbytes()); });
  }

  const Settings& settings_;
  sherd::Group group_;
  sherd::DeviceMesh mesh_;
  nlohmann::json rows_ = nlohmann::json::array();
};

// Every rank has a row of every tensor, so that there are ranks times tensors chunks. The others' files are taken to be
// as this rank's is.
nlohmann::json plan(int ranks, int64_t tensors) {
  const sherd::WorldScope scope(sherd::fake_world(0, ranks));
  const auto mesh = sherd::init_device_mesh("cpu", {ranks});
  StateDict state;
  for (int64_t i = 0; i < tensors; ++i) {
    state["layers." + std::to_string(i) + ".weight"] = sherd::ones({ranks, 16}, mesh, {Shard(0)});
  }
  const auto storage = sherd::memory_storage();
  const auto begin = Clock::now();
  const double before = processor_seconds();
  sherd::save(state, "planned", {.storage = storage});
  const double used = processor_seconds() - before;
  const double seconds = seconds_since(begin);
  const int64_t bytes = storage->open("planned/.metadata")->size();
  return {{"case", "plan"},     {"ranks", ranks},      {"tensors", tensors},
          {"seconds", seconds}, {"cpu_seconds", used}, {"metadata_bytes", bytes}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What checkpoints cost."};
  Settings settings;
  int threads = 0;
  int planned = 0;
  app.add_option("cases", settings.cases, "what is measured, in this order");
  app.add_option("--folder", settings.folder, "where checkpoints are written");
  app.add_option("--tensors", settings.tensors, "how many large ones");
  app.add_option("--side", settings.side, "rows and columns of a large one");
  app.add_option("--small", settings.small, "how many small ones");
  app.add_flag("--cold", settings.cold, "forget cached files before each load");
  app.add_option("--threads", threads, "ranks as threads, instead of the launcher's processes");
  app.add_option("--plan", planned, "as one of so many ranks: plan the save of --tensors tensors");
  CLI11_PARSE(app, argc, argv);
  const auto run = [&](const sherd::World& world) {
    const nlohmann::json rows = Bench(world, settings).run();
    if (world.rank() == 0) std::printf("%s\n", rows.dump().c_str());
  };
  if (planned > 0) {
    std::printf("%s\n", nlohmann::json::array({plan(planned, settings.tensors)}).dump().c_str());
  } else if (threads > 0) {
    sherd::spawn(threads, run);
  } else {
    run(sherd::init());
  }
}
