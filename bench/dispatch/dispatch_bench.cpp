// What sherd adds to an operator: the C++ side of `./dev bench dispatch` (run.py drives it).
//
//   bench_dispatch times            best time of every case, local and sharded
//   bench_dispatch instructions     every case between marks, for callgrind to count
//   bench_dispatch miss             what the first call on a new shape costs
//   bench_dispatch loop CASE SIDE N one case N times and nothing else, for a profiler
//
// Everything runs on one thread, in a pretended world of eight ranks in which nothing is sent.

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cases.h"
#include "sherd/device_mesh.h"
#include "sherd/world.h"

/// A place that callgrind knows by name: `--dump-before=dispatch_bench_mark` writes the counts at each call.
extern "C" __attribute__((noinline)) void dispatch_bench_mark() { asm volatile(""); }

namespace {

constexpr int kWorld = 8;
constexpr int kWarmUp = 200;

struct Options {
  std::string device = "cpu";
  int runs = 5;
  int iterations = 20000;
  std::string name;
  std::string side;
};

using Clock = std::chrono::steady_clock;

double nanoseconds(Clock::duration time) { return std::chrono::duration<double, std::nano>(time).count(); }

void repeat(const std::function<void()>& run, int iterations) {
  for (int i = 0; i < iterations; ++i) run();
}

/// Nanoseconds per call; a GPU is given time to finish.
double time_of(const std::function<void()>& run, const Options& options, int iterations) {
  const bool on_gpu = options.device == "cuda";
  if (on_gpu) torch::cuda::synchronize();
  const auto start = Clock::now();
  repeat(run, iterations);
  if (on_gpu) torch::cuda::synchronize();
  return nanoseconds(Clock::now() - start) / iterations;
}

// The two sides take turns, so that a disturbance of the machine meets both.
void print_times(const sherd::DeviceMesh& mesh, const Options& options) {
  auto results = nlohmann::json::array();
  for (const Case& each : make_cases(mesh)) {
    if (!options.name.empty() && each.name != options.name) continue;
    torch::AutoGradMode gradients(each.gradients);
    time_of(each.local, options, kWarmUp);
    time_of(each.sharded, options, kWarmUp);
    double local = std::numeric_limits<double>::infinity(), sharded = local;
    for (int run = 0; run < options.runs; ++run) {
      local = std::min(local, time_of(each.local, options, options.iterations));
      sharded = std::min(sharded, time_of(each.sharded, options, options.iterations));
    }
    fmt::print(stderr, "c++ {}: {:.0f} -> {:.0f} ns\n", each.name, local, sharded);
    results.push_back({{"case", each.name}, {"local_ns", local}, {"sherd_ns", sharded}});
  }
  fmt::print("{}\n", results.dump());
}

// For each case and side three marks: before `iterations` calls, after them, and after twice as many. The slope
// between the two is the cost of a call, free of what happens once. Many calls: what malloc does differs from call to
// call. A training step is some fifty operators, so fewer do. Prints the order.
void print_instructions(const sherd::DeviceMesh& mesh, const Options& options) {
  auto order = nlohmann::json::array();
  for (const Case& each : make_cases(mesh)) {
    torch::AutoGradMode gradients(each.gradients);
    const int iterations = each.gradients ? std::max(options.iterations / 20, 1) : options.iterations;
    for (const bool local : {true, false}) {
      const auto& run = local ? each.local : each.sharded;
      repeat(run, 20);
      dispatch_bench_mark();
      repeat(run, iterations);
      dispatch_bench_mark();
      repeat(run, 2 * iterations);
      dispatch_bench_mark();
      order.push_back({{"case", each.name}, {"side", local ? "local" : "sherd"}, {"iterations", iterations}});
    }
  }
  fmt::print("{}\n", order.dump());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Every number of rows is new to the cache. The second call on it is a hit; the difference is the miss. The first
// shape of all counts apart: there the operator itself is new.
void print_miss(const sherd::DeviceMesh& mesh, const Options& options) {
  torch::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<double> first;
  std::vector<std::vector<double>> misses;
  for (int64_t rows = 1; rows <= std::min(options.iterations, 500); ++rows) {
    const auto operators = sharded_operators(rows, mesh);
    misses.resize(operators.size());
    for (size_t i = 0; i < operators.size(); ++i) {
      const auto start = Clock::now();
      operators[i].run();
      const auto middle = Clock::now();
      operators[i].run();
      const double miss = nanoseconds(middle - start) - nanoseconds(Clock::now() - middle);
      if (rows == 1) {
        names.push_back(operators[i].name);
        first.push_back(miss);
      } else {
        misses[i].push_back(miss);
      }
    }
  }
  auto results = nlohmann::json::array();
  for (size_t i = 0; i < names.size(); ++i)
    results.push_back({{"case", names[i]}, {"miss_ns", median(misses[i])}, {"first_ns", first[i]}});
  fmt::print("{}\n", results.dump());
}

void loop(const sherd::DeviceMesh& mesh, const Options& options) {
  for (const Case& each : make_cases(mesh)) {
    if (each.name != options.name) continue;
    torch::AutoGradMode gradients(each.gradients);
    return repeat(options.side == "local" ? each.local : each.sharded, options.iterations);
  }
  throw std::invalid_argument("loop: no case is called " + options.name);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App parser("Measures what sherd adds to an operator; prints JSON");
  parser.require_subcommand(1);
  const auto mode = [&](const char* name, const char* summary) {
    auto* command = parser.add_subcommand(name, summary);
    command->add_option("--device", options.device, "cpu or cuda (cpu)");
    command->add_option("--runs", options.runs, "the best of so many counts (5)")->check(CLI::PositiveNumber);
    command->add_option("--iterations", options.iterations, "calls in a run (20000)")->check(CLI::PositiveNumber);
    return command;
  };
  auto* times = mode("times", "best time of every case, local and sharded");
  times->add_option("CASE", options.name, "this one only");
  auto* instructions = mode("instructions", "every case between marks, for callgrind");
  auto* miss = mode("miss", "what the first call on a new shape costs");
  auto* one = mode("loop", "one case N times, for a profiler");
  one->add_option("CASE", options.name)->required();
  one->add_option("SIDE", options.side)->required()->check(CLI::IsMember({"local", "sherd"}));
  one->add_option("N", options.iterations)->required();
  CLI11_PARSE(parser, argc, argv);

  try {
    at::set_num_threads(1);
    const sherd::WorldScope scope(sherd::fake_world(0, kWorld));
    const auto mesh = sherd::init_device_mesh(options.device, {kWorld});
    if (*times) print_times(mesh, options);
    if (*instructions) print_instructions(mesh, options);
    if (*miss) print_miss(mesh, options);
    if (*one) loop(mesh, options);
    return 0;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "bench_dispatch: {}\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_dispatch: {}\n", error.what());
  }
  return 1;
}
