// Trains a small GPT on four ranks and, beside it, on one; shows that the losses agree, how the parameters lie and
// what is sent. `demo --help` lists what can be changed.

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "page.h"
#include "progress.h"
#include "report.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/world.h"
#include "train.h"

namespace {

struct DemoOptions {
  int64_t ranks = 0;  // 0: as many as the mesh has
  std::string mesh;
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string html = "demo.html";
  int steps = 100;
  bool processes = false;
};

/// The mesh that was asked for; without one, two halves of the batch by whatever is left of the ranks.
sherd::Mesh chosen_mesh(const DemoOptions& options) {
  if (options.mesh.empty()) {
    const int64_t ranks = options.ranks > 0 ? options.ranks : 4;
    const int64_t dp = ranks % 2 == 0 ? 2 : 1;
    return sherd::Mesh({{"dp", dp}, {"tp", ranks / dp}});
  }
  const sherd::Mesh mesh = sherd::parse_mesh(options.mesh);
  for (const auto& axis : mesh.axes())
    if (axis.name != "dp" && axis.name != "tp")
      throw std::invalid_argument(fmt::format(
          "--mesh: the demo knows the axes dp and tp only\n  mesh: {}\n  help: --mesh \"[dp=2, tp=4]\"", options.mesh));
  if (options.ranks > 0 && options.ranks != mesh.size())
    throw std::invalid_argument(
        fmt::format("--ranks: the mesh has another number of ranks\n  mesh: {}, {} ranks\n"
                    "  --ranks: {}\n  help: leave --ranks out",
                    options.mesh, mesh.size(), options.ranks));
  return mesh;
}

bool is_launched() {
  return std::ranges::any_of(std::initializer_list<const char*>{"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"},
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

/// Becomes `sherd run`, which starts this program once per rank.
void launch_self(int64_t ranks, char** argv) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string sherd = self.parent_path() / "sherd";
  std::vector<std::string> words = {sherd, "run", "--no-prefix", "-n", std::to_string(ranks), "--", self};
  for (char** word = argv + 1; *word != nullptr; ++word) words.emplace_back(*word);
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(sherd.c_str(), pointers.data());
  throw std::runtime_error(fmt::format("--processes: cannot start {}: {}", sherd, std::strerror(errno)));
}

class Stopwatch {
 public:
  /// Runs `work` and adds the time that it took.
  template <class Function>
  auto measure(Function&& work) {
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = 0;
};

std::vector<ParameterPicture> pictures_of(Gpt& model) {
  std::vector<ParameterPicture> pictures;
  const auto parameters = model->named_parameters();
  for (const char* name : {"blocks.0.attention.query.weight", "blocks.0.attention.out.weight", "tokens.weight"})
    pictures.push_back({name, sherd::visualize(parameters[name]), sherd::layout_of(parameters[name])});
  return pictures;
}

/// What is to be trained, and where.
struct Job {
  sherd::Mesh mesh;
  Corpus corpus{kText};
  TrainOptions training;
  std::string device;
  int steps = 0;
};

/// What every rank does. `twin` is trained alone beside it, on rank 0, which also writes the report.
void train(const Job& job, Gpt model, Gpt twin, const sherd::World& world, Report& report) {
  const sherd::DeviceMesh mesh(job.device, job.mesh);
  Trainer sharded(std::move(model), job.corpus, job.training, mesh);
  if (world.rank() != 0) {
    for (int step = 0; step < job.steps; ++step) sharded.step();
    return;
  }

  Trainer alone(std::move(twin), job.corpus, job.training, mesh.device());
  Stopwatch sharded_time, alone_time;
  Progress progress(job.steps);
  for (int step = 0; step < job.steps; ++step) {
    sherd::CommRecorder recorder;
    report.sharded.push_back(sharded_time.measure([&] { return sharded.step(); }));
    report.calls = recorder.calls();
    report.collectives = recorder.to_string();
    report.alone.push_back(alone_time.measure([&] { return alone.step(); }));
    progress.show(step + 1, fmt::format("loss {:.4f}  on one rank {:.4f}  {:.0f} s", report.sharded.back(),
                                        report.alone.back(), sharded_time.seconds() + alone_time.seconds()));
  }
  report.sharded_seconds = sharded_time.seconds();
  report.alone_seconds = alone_time.seconds();
  report.pictures = pictures_of(sharded.model());
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("--html: cannot write " + path);
}

/// Prints the report, writes the page, and returns the exit code.
int tell(const Report& report, const std::string& html) {
  for (const auto& picture : report.pictures) fmt::print("\n{}\n{}", picture.name, picture.text);
  int64_t bytes = 0;
  for (const auto& call : report.calls) bytes += call.bytes;
  fmt::print("\none step on rank 0: {} collectives, {:.1f} KiB received\n{}", report.calls.size(),
             static_cast<double>(bytes) / 1024, report.collectives);
  if (!report.collectives.ends_with('\n')) fmt::print("\n");

  const auto differences = relative_differences(report.sharded, report.alone);
  const auto largest = std::ranges::max_element(differences);
  fmt::print("\nloss {:.4f} -> {:.4f}; {:.1f} s on {} ranks, {:.1f} s on one\n", report.sharded.front(),
             report.sharded.back(), report.sharded_seconds, report.ranks, report.alone_seconds);
  fmt::print("largest relative difference between the curves: {:.1e} at step {} (allowed: {:.0e})\n", *largest,
             largest - differences.begin() + 1, report.tolerance);
  write_file(html, make_page(report));
  fmt::print("the page with curve and pictures: {}\n", html);

  // Written so that a NaN does not pass.
  const auto wrong = std::ranges::find_if(differences, [&](double d) { return !(d <= report.tolerance); });
  if (wrong == differences.end()) return 0;
  const auto step = static_cast<size_t>(wrong - differences.begin());
  std::fflush(stdout);
  fmt::print(stderr, "demo: the two curves disagree\n  first at step: {}\n  on {} ranks: {}\n  on one rank: {}\n",
             step + 1, report.ranks, report.sharded[step], report.alone[step]);
  return 1;
}

void announce(const Report& report, const Gpt& model) {
  int64_t weights = 0;
  for (const auto& parameter : model->parameters()) weights += parameter.numel();
  fmt::print("a GPT of {} weights on mesh {} ({} {}, {}, {}), and the same on one rank\n", weights, report.mesh,
             report.ranks, report.as_processes ? "processes" : "threads", report.device, report.dtype);
  std::fflush(stdout);
}

int run(const DemoOptions& options, char** argv) {
  Job job{.mesh = chosen_mesh(options), .training = {}, .device = options.device, .steps = options.steps};
  if (options.processes && !is_launched()) launch_self(job.mesh.size(), argv);

  job.training.model.vocabulary = job.corpus.vocabulary();
  job.training.dtype = options.dtype == "float64" ? at::kDouble : at::kFloat;
  Report report{.ranks = job.mesh.size(),
                .mesh = sherd::to_string(job.mesh),
                .device = options.device,
                .dtype = options.dtype,
                .as_processes = options.processes,
                .tolerance = options.dtype == "float64" ? 1e-10 : 1e-4};

  const Gpt model = make_model(job.training);
  const auto copy = [&] { return copy_model(model, job.training); };
  if (options.processes) {
    const sherd::World world = sherd::init();
    if (world.rank() == 0) announce(report, model);
    train(job, copy(), model, world, report);
    return world.rank() == 0 ? tell(report, options.html) : 0;
  }
  announce(report, model);
  std::vector<Gpt> models;
  for (int64_t rank = 0; rank < job.mesh.size(); ++rank) models.push_back(copy());
  sherd::spawn(static_cast<int>(job.mesh.size()), [&](sherd::World& world) {
    train(job, models[static_cast<size_t>(world.rank())], model, world, report);
  });
  return tell(report, options.html);
}

}  // namespace

int main(int argc, char** argv) {
  DemoOptions options;
  CLI::App parser(
      "Trains a small GPT on the ranks of a mesh and, from the same weights, on one rank; compares the losses at every "
      "step, draws how parameters are sharded and counts what is sent. Exit code 1 where the losses disagree.");
  parser.add_option("--ranks", options.ranks, "how many ranks (4)")->check(CLI::PositiveNumber);
  parser.add_option("--mesh", options.mesh, "axes dp (cuts the batch) and tp (cuts the weights); \"[dp=2, tp=2]\"");
  parser.add_flag("--processes", options.processes, "ranks are processes, not threads");
  parser.add_option("--device", options.device, "cpu or cuda (cpu)")->check(CLI::IsMember({"cpu", "cuda"}));
  parser.add_option("--dtype", options.dtype, "float32 or float64 (float32)")
      ->check(CLI::IsMember({"float32", "float64"}));
  parser.add_option("--steps", options.steps, "steps of training (100)")->check(CLI::PositiveNumber);
  parser.add_option("--html", options.html, "the page to write (demo.html)");
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parser.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run(options, argv);
  } catch (const c10::Error& error) {
    fmt::print(stderr, "demo: {}\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    fmt::print(stderr, "demo: {}\n", error.what());
  }
  return 1;
}
