// What does a collective cost between ranks of one host? The ranks are the processes that a launcher started, or
// threads (--threads N). Rank 0 prints a list of {"case", "seconds", "copy_seconds", ...}: the time of one call, and
// that of copying the bytes that the call must write on a rank (its own block included) from memory to memory, on all
// ranks at once; what a rank receives, as the recorder counts it, and the memory that a rank takes beside its tensors,
// as the kernel does, both as means over the ranks.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "resident_memory.h"
#include "sherd/collectives.h"
#include "sherd/world.h"

namespace {

using sherd::Group;

struct Plan {
  std::vector<int64_t> sizes;  // bytes of the whole tensor
  double seconds = 0.2;        // for each case
  int threads = 0;             // ranks in this process, where they are threads
};

double average(const Group& group, double value) {
  const at::Tensor total = at::full({1}, value, at::kDouble);
  sherd::all_reduce(group, total).wait();
  return total.item<double>() / static_cast<double>(group.size());
}

// What one call moves and takes, on a rank.
struct Use {
  int64_t moved = 0;  // bytes that it receives from others
  int64_t peak = 0;   // bytes of memory: what the call takes for itself, and the rank's part of what its group keeps
};

// The first call with these tensors: what the transport makes once and keeps for others of this size is counted, too.
Use use_of(const Group& group, const std::function<void()>& call, const Plan& plan) {
  sherd::barrier(group);
  if (plan.threads == 0 || group.rank() == 0) ResidentMemory::forget_peak();
  sherd::barrier(group);
  const int64_t before = ResidentMemory::now();
  sherd::barrier(group);
  int64_t moved = 0;
  {
    const sherd::CommRecorder recorder;
    call();
    moved = recorder.bytes();
  }
  sherd::barrier(group);
  const auto peak = static_cast<double>(ResidentMemory::peak() - before + ResidentMemory::shared());
  const double mean = average(group, peak) / std::max(1, plan.threads);
  return {static_cast<int64_t>(average(group, static_cast<double>(moved))), static_cast<int64_t>(mean)};
}

// Of one call, as rank 0 sees it: the time that passes, and that of the process on a core (of all ranks, where they are
// threads). On a machine that others use, too, the second says more.
struct Time {
  double wall = 1e9;
  double cpu = 1e9;
};

// The best of some means over calls in a row. All ranks make the same number of calls.
Time time_of(const Group& group, const std::function<void()>& call, double seconds) {
  const auto run = [&](int64_t calls) {
    sherd::barrier(group);
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    for (int64_t i = 0; i < calls; ++i) call();
    const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    sherd::barrier(group);
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return Time{wall / static_cast<double>(calls), cpu / static_cast<double>(calls)};
  };
  run(2);
  const at::Tensor calls = at::zeros({1}, at::kLong);
  calls[0] = static_cast<int64_t>(std::clamp(seconds / 3 / run(2).wall, 2.0, 10000.0));
  sherd::broadcast(group, calls, 0).wait();
  Time best;
  for (int i = 0; i < 3; ++i) {
    const Time time = run(calls.item<int64_t>());
    best = {std::min(best.wall, time.wall), std::min(best.cpu, time.cpu)};
  }
  return best;
}

nlohmann::json measure(const sherd::World& world, const Plan& plan) {
  const Group group = world.group();
  const int64_t n = group.size();
  nlohmann::json rows = nlohmann::json::array();
  {  // programs and groups are in memory before any of it is counted
    const at::Tensor whole = at::zeros({n}), other = at::zeros({n}), part = at::zeros({1});
    sherd::all_reduce(group, whole).wait();
    sherd::all_gather(group, whole, part).wait();
    sherd::reduce_scatter(group, part, whole).wait();
    sherd::all_to_all(group, other, whole).wait();
    sherd::broadcast(group, whole, 0).wait();
    use_of(
        group, [] {}, plan);
  }
  for (const int64_t bytes : plan.sizes) {
    const int64_t numel = bytes / 4;
    // Written, so that their memory is there.
    const at::Tensor whole = at::empty({numel}).zero_();
    const at::Tensor other = at::empty({numel}).zero_();
    const at::Tensor part = at::empty({numel / n}).zero_();
    // `needed`: what a rank must receive, on average, as a part of the whole; `written`: what it must write, its own
    // block included.
    const auto add = [&](const char* name, double needed, double written, const std::function<void()>& call) {
      const auto copied = static_cast<size_t>(written * static_cast<double>(bytes));
      const auto copy = [&] {
        char* to = static_cast<char*>(other.mutable_data_ptr());
        const char* from = static_cast<const char*>(whole.const_data_ptr());
        for (size_t left = copied; left > 0;) {
          const size_t now = std::min(left, static_cast<size_t>(bytes));
          std::memcpy(to, from, now);
          left -= now;
        }
      };
      const Use use = use_of(group, call, plan);
      const Time one = time_of(group, call, plan.seconds);
      const Time copies = time_of(group, copy, plan.seconds / 4);
      rows.push_back({{"collective", name},
                      {"bytes", bytes},
                      {"ranks", n},
                      {"seconds", one.wall},
                      {"cpu_seconds", one.cpu},
                      {"copy_seconds", copies.wall},
                      {"copy_cpu_seconds", copies.cpu},
                      {"bytes_moved", use.moved},
                      {"bytes_needed", static_cast<size_t>(needed * static_cast<double>(bytes))},
                      {"peak_bytes", use.peak}});
    };
    const double others = static_cast<double>(n - 1) / static_cast<double>(n);
    add("all_reduce", 2 * others, 2 * others, [&] { sherd::all_reduce(group, whole).wait(); });
    add("all_gather", others, 1, [&] { sherd::all_gather(group, whole, part).wait(); });
    add("reduce_scatter", others, others, [&] { sherd::reduce_scatter(group, part, whole).wait(); });
    add("all_to_all", others, 1, [&] { sherd::all_to_all(group, other, whole).wait(); });
    add("broadcast", others, 1, [&] { sherd::broadcast(group, whole, 0).wait(); });
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What a collective costs between ranks of one host."};
  Plan plan{.sizes = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20}};
  std::string backend;
  app.add_option("--sizes", plan.sizes, "bytes of the whole tensor")->delimiter(',');
  app.add_option("--seconds", plan.seconds, "time for each case");
  app.add_option("--threads", plan.threads, "ranks as threads, instead of the launcher's processes");
  app.add_option("--backend", backend, "instead of what sherd chooses");
  CLI11_PARSE(app, argc, argv);
  const auto run = [&](const sherd::World& world) {
    const nlohmann::json rows = measure(world, plan);
    if (world.rank() == 0) std::printf("%s\n", rows.dump().c_str());
  };
  if (plan.threads > 0) {
    sherd::spawn(plan.threads, run, {.backend = backend});
  } else {
    run(sherd::init({.backend = backend}));
  }
}
