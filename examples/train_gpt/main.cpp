// Trains a small GPT on four ranks and, beside it, on one: the first half on one mesh, the rest, from a checkpoint, on
// another. Shows that the losses agree, how the parameters lie and what is sent. `demo --help` lists what can be
// changed.

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
#include <map>
#include <optional>
#include <stdexcept>

#include "outcome.h"
#include "page.h"
#include "progress.h"
#include "sherd/checkpoint.h"
#include "sherd/comm_debug.h"
#include "sherd/dtensor.h"
#include "sherd/report.h"
#include "sherd/world.h"
#include "train.h"

namespace {

struct DemoOptions {
  int64_t ranks = 0;  // 0: as many as the mesh has
  std::string mesh;
  std::string resume_mesh;  // empty: all ranks along dp
  std::string checkpoint = "demo.checkpoint";
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string html = "demo.html";
  int steps = 100;
  bool processes = false;
};

/// The mesh that a flag names.
sherd::Mesh parsed_mesh(const std::string& flag, const std::string& text) {
  const sherd::Mesh mesh = sherd::parse_mesh(text);
  for (const auto& axis : mesh.axes())
    if (axis.name != "dp" && axis.name != "tp")
      throw std::invalid_argument(fmt::format(
          "{0}: the demo knows the axes dp and tp only\n  mesh: {1}\n  help: {0} \"[dp=2, tp=4]\"", flag, text));
  return mesh;
}

/// The mesh that was asked for; without one, two halves of the batch by whatever is left of the ranks.
sherd::Mesh chosen_mesh(const DemoOptions& options) {
  if (options.mesh.empty()) {
    const int64_t ranks = options.ranks > 0 ? options.ranks : 4;
    const int64_t dp = ranks % 2 == 0 ? 2 : 1;
    return sherd::Mesh({{"dp", dp}, {"tp", ranks / dp}});
  }
  const sherd::Mesh mesh = parsed_mesh("--mesh", options.mesh);
  if (options.ranks > 0 && options.ranks != mesh.size())
    throw std::invalid_argument(
        fmt::format("--ranks: the mesh has another number of ranks\n  mesh: {}, {} ranks\n"
                    "  --ranks: {}\n  help: leave --ranks out",
                    options.mesh, mesh.size(), options.ranks));
  return mesh;
}

/// The mesh of the second half.
sherd::Mesh chosen_resume_mesh(const DemoOptions& options, int64_t ranks) {
  if (options.resume_mesh.empty()) return sherd::Mesh({{"dp", ranks}, {"tp", 1}});
  const sherd::Mesh mesh = parsed_mesh("--resume-mesh", options.resume_mesh);
  if (mesh.size() != ranks)
    throw std::invalid_argument(
        fmt::format("--resume-mesh: it has another number of ranks than the first mesh\n  mesh: {}, {} ranks\n"
                    "  first mesh: {} ranks\n  help: --resume-mesh \"[dp={}, tp=1]\"",
                    options.resume_mesh, mesh.size(), ranks, ranks));
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
  sherd::Mesh resume_mesh;
  Corpus corpus{kText};
  TrainOptions training;
  std::string device;
  std::string checkpoint;
  int steps = 0;
};

/// The models that one rank trains: on the first mesh, on the second (other weights, until it loads the checkpoint),
/// and on rank 0 the one that is trained alone.
struct Models {
  Gpt first, second, alone;
};

/// The run as rank 0 tells it. The other ranks make the same steps and say nothing.
class Narrator {
 public:
  Narrator(const Job& job, Gpt alone, at::Device device, Outcome& outcome)
      : alone_(std::move(alone), job.corpus, job.training, device), progress_(job.steps), outcome_(outcome) {}

  /// What the rank that trains alone holds.
  sherd::ChartBar memory_alone() const {
    sherd::ChartBar bar{"one rank alone", {}};
    for (const auto& part : alone_.memory()) bar.values.push_back(static_cast<double>(sherd::bytes_here(part.tensors)));
    return bar;
  }

  void step(Trainer& sharded) {
    sherd::CommDebugMode debug(*sharded.model());
    outcome_.sharded.push_back(sharded_time_.measure([&] { return sharded.step(); }));
    Leg& leg = outcome_.legs.back();
    leg.steps += 1;
    debug.stop();
    leg.sent = debug.records();
    outcome_.alone.push_back(alone_time_.measure([&] { return alone_.step(); }));
    outcome_.sharded_seconds = sharded_time_.seconds();
    outcome_.alone_seconds = alone_time_.seconds();
    progress_.show(static_cast<int>(outcome_.sharded.size()),
                   fmt::format("loss {:.4f}  on one rank {:.4f}  {:.0f} s", outcome_.sharded.back(),
                               outcome_.alone.back(), outcome_.sharded_seconds + outcome_.alone_seconds));
  }

 private:
  Trainer alone_;
  Progress progress_;
  Outcome& outcome_;
  Stopwatch sharded_time_, alone_time_;
};

/// Trains a model on a mesh up to `steps`, from `checkpoint` where there is one, and saves it there where not.
/// The second leg cuts the parameters over dp, too.
void train_leg(const Job& job, const sherd::Mesh& ranks, Gpt model, bool resumes, int steps, Narrator* narrator,
               Outcome& outcome) {
  const sherd::DeviceMesh mesh(job.device, ranks);
  TrainOptions training = job.training;
  training.fully_sharded = resumes && ranks.find_axis("dp");
  Trainer trainer(std::move(model), job.corpus, training, mesh);
  if (narrator != nullptr)
    outcome.legs.push_back({.mesh = sherd::to_string(ranks), .fully_sharded = training.fully_sharded});
  if (resumes) {
    auto state = trainer.state();
    Stopwatch watch;
    watch.measure([&] { return sherd::load(state, job.checkpoint); });
    trainer.go_on_from(state);
    if (narrator != nullptr) outcome.load_seconds = watch.seconds();
  }
  while (trainer.steps() < steps) {
    if (narrator != nullptr)
      narrator->step(trainer);
    else
      trainer.step();
  }
  auto memory = sherd::memory_chart(mesh.world().group(), "bytes per rank", trainer.memory());
  if (narrator != nullptr) {
    outcome.legs.back().pictures = pictures_of(trainer.model());
    memory.bars.push_back(narrator->memory_alone());
    outcome.legs.back().memory = std::move(memory);
  }
  if (resumes || steps == job.steps) return;
  Stopwatch watch;
  const auto saved = watch.measure([&] { return sherd::save(trainer.state(), job.checkpoint); });
  if (narrator == nullptr) return;
  outcome.save_seconds = watch.seconds();
  outcome.checkpoint_bytes = saved.bytes;
}

/// What every rank does.
void train(const Job& job, const Models& models, const sherd::World& world, Outcome& outcome) {
  std::optional<Narrator> narrator;
  if (world.rank() == 0) narrator.emplace(job, models.alone, sherd::DeviceMesh(job.device, job.mesh).device(), outcome);
  Narrator* const narrates = narrator ? &*narrator : nullptr;
  const int half = (job.steps + 1) / 2;
  train_leg(job, job.mesh, models.first, /*resumes=*/false, half, narrates, outcome);
  if (half < job.steps) train_leg(job, job.resume_mesh, models.second, /*resumes=*/true, job.steps, narrates, outcome);
}

/// What one step sends, by collective and axis.
void print_sent(const Leg& leg) {
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;
  int64_t all = 0;
  for (const auto& record : leg.sent) {
    auto& [calls, bytes] = kinds[fmt::format("{} on {}", record.collective, record.axis)];
    calls += 1;
    bytes += record.bytes;
    all += record.bytes;
  }
  const auto kibibytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1024; };
  fmt::print("\none step on {}, rank 0: {} collectives, {:.1f} KiB received\n", leg.mesh, leg.sent.size(),
             kibibytes(all));
  for (const auto& [kind, total] : kinds)
    fmt::print("  {} x{} {:.1f} KiB\n", kind, total.first, kibibytes(total.second));
}

/// Prints the outcome, writes the page, and returns the exit code.
int tell(const Outcome& outcome, const std::string& html) {
  for (const Leg& leg : outcome.legs) {
    for (const auto& picture : leg.pictures) fmt::print("\n{} on {}\n{}", picture.name, leg.mesh, picture.text);
    print_sent(leg);
  }
  if (outcome.legs.size() == 2)
    fmt::print("\nsaved on {} after step {} ({:.1f} MiB, {:.0f} ms); resumed on {} ({:.0f} ms)\n", outcome.legs[0].mesh,
               outcome.legs[0].steps, static_cast<double>(outcome.checkpoint_bytes) / (1 << 20),
               1e3 * outcome.save_seconds, outcome.legs[1].mesh, 1e3 * outcome.load_seconds);

  const auto differences = relative_differences(outcome.sharded, outcome.alone);
  const auto largest = std::ranges::max_element(differences);
  fmt::print("\nloss {:.4f} -> {:.4f}; {:.1f} s on {} ranks, {:.1f} s on one\n", outcome.sharded.front(),
             outcome.sharded.back(), outcome.sharded_seconds, outcome.ranks, outcome.alone_seconds);
  fmt::print("largest relative difference between the curves: {:.1e} at step {} (allowed: {:.0e})\n", *largest,
             largest - differences.begin() + 1, outcome.tolerance);
  make_page(outcome).write(html);
  fmt::print("the page with curve and pictures: {}\n", html);

  // Written so that a NaN does not pass.
  const auto wrong = std::ranges::find_if(differences, [&](double d) { return !(d <= outcome.tolerance); });
  if (wrong == differences.end()) return 0;
  const auto step = static_cast<size_t>(wrong - differences.begin());
  std::fflush(stdout);
  fmt::print(stderr, "demo: the two curves disagree\n  first at step: {}\n  on {} ranks: {}\n  on one rank: {}\n",
             step + 1, outcome.ranks, outcome.sharded[step], outcome.alone[step]);
  return 1;
}

void announce(const Job& job, const Outcome& outcome, const Gpt& model) {
  int64_t weights = 0;
  for (const auto& parameter : model->parameters()) weights += parameter.numel();
  fmt::print("a GPT of {} weights on mesh {}, then on {} ({} {}, {}, {}), and the same on one rank\n", weights,
             sherd::to_string(job.mesh), sherd::to_string(job.resume_mesh), outcome.ranks,
             outcome.as_processes ? "processes" : "threads", outcome.device, outcome.dtype);
  std::fflush(stdout);
}

int run(const DemoOptions& options, char** argv) {
  Job job{.mesh = chosen_mesh(options),
          .resume_mesh = {},
          .training = {},
          .device = options.device,
          .checkpoint = options.checkpoint,
          .steps = options.steps};
  job.resume_mesh = chosen_resume_mesh(options, job.mesh.size());
  if (options.processes && !is_launched()) launch_self(job.mesh.size(), argv);

  job.training.model.vocabulary = job.corpus.vocabulary();
  job.training.dtype = options.dtype == "float64" ? at::kDouble : at::kFloat;
  Outcome outcome{.ranks = job.mesh.size(),
                  .device = options.device,
                  .dtype = options.dtype,
                  .as_processes = options.processes,
                  .tolerance = options.dtype == "float64" ? 1e-10 : 1e-4};

  const Gpt model = make_model(job.training);
  TrainOptions others = job.training;
  others.seed += 1;
  const auto models = [&] {
    return Models{copy_model(model, job.training), make_model(others), copy_model(model, job.training)};
  };
  if (options.processes) {
    const sherd::World world = sherd::init();
    if (world.rank() == 0) announce(job, outcome, model);
    train(job, models(), world, outcome);
    return world.rank() == 0 ? tell(outcome, options.html) : 0;
  }
  announce(job, outcome, model);
  std::vector<Models> of_ranks;
  for (int64_t rank = 0; rank < job.mesh.size(); ++rank) of_ranks.push_back(models());
  sherd::spawn(static_cast<int>(job.mesh.size()),
               [&](sherd::World& world) { train(job, of_ranks[static_cast<size_t>(world.rank())], world, outcome); });
  return tell(outcome, options.html);
}

}  // namespace

int main(int argc, char** argv) {
  DemoOptions options;
  CLI::App parser(
      "Trains a small GPT on the ranks of a mesh and, from the same weights, on one rank; half way it saves a "
      "checkpoint "
      "and goes on from it on another mesh. Compares the losses at every step, draws how parameters are sharded and "
      "counts what is sent. Exit code 1 where the losses disagree.");
  parser.add_option("--ranks", options.ranks, "how many ranks (4)")->check(CLI::PositiveNumber);
  parser.add_option("--mesh", options.mesh, "axes dp (cuts the batch) and tp (cuts the weights); \"[dp=2, tp=2]\"");
  parser.add_option("--resume-mesh", options.resume_mesh, "the mesh of the second half (all ranks along dp)");
  parser.add_option("--checkpoint", options.checkpoint, "the folder to save to (demo.checkpoint)");
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
