#include "program.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "metrics.h"
#include "progress.h"
#include "sherd/checkpoint_manager.h"
#include "sherd/collectives.h"
#include "sherd/error.h"
#include "sherd/random.h"
#include "sherd/world.h"
#include "stop_signal.h"

namespace {

using sherd::ErrorText;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// What rank 0 finds wrong, every rank throws.
void check_on_first_rank(const sherd::World& world, const std::function<void()>& check) {
  std::string problem;
  if (world.rank() == 0) {
    try {
      check();
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }
  const auto problems = sherd::all_gather_text(world.group(), problem);
  if (!problems.front().empty()) throw std::runtime_error(problems.front());
}

/// Ranks whose files or command lines differ would wait for each other in the middle of a step.
void check_same_settings(const sherd::World& world, const Program& program, const std::string& settings) {
  const auto all = sherd::all_gather_text(world.group(), fmt::format("{}{:x}", settings, program.fingerprint()));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw std::runtime_error(ErrorText(program.name(), "ranks have different settings")
                                 .fact("rank 0", all[0])
                                 .fact(fmt::format("rank {}", rank), all[rank])
                                 .help("start every rank with the same flags, files and data"));
  }
}

void check_architecture(const Program& program, const Settings& settings, const std::string& before, int64_t saved) {
  const auto differences = architecture_differences(program, before, to_json_text(program, settings));
  if (differences.empty()) return;
  ErrorText error(program.name(), "the checkpoints are of another architecture");
  error.fact("checkpoints", fmt::format("{}, the last of step {}", settings.out, saved));
  for (const auto& each : differences) error.fact("other", each);
  throw std::invalid_argument(error.help("the settings that it began with, or another --out"));
}

/// A folder that is there, and the settings in it for those who ask later.
void prepare_folder(const Program& program, const Settings& settings, const sherd::CheckpointManager& checkpoints) {
  std::error_code error;
  std::filesystem::create_directories(settings.out, error);
  const std::string path = settings.out + "/config.json";
  if (const auto steps = checkpoints.steps(); !steps.empty())
    check_architecture(program, settings, read_file(path), steps.back());
  std::ofstream file(path);
  file << to_json_text(program, settings);
  if (!file.flush()) {
    throw std::runtime_error(
        ErrorText(program.name(), "the folder cannot be written").fact("file", path).help("--out FOLDER"));
  }
}

/// Cores that the launcher has not shared out, each rank of a host would take all of.
void share_cores(const sherd::World& world) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  torch::set_num_threads(std::max(1, cores / world.local_size()));
}

class Stopwatch {
 public:
  /// Seconds since it was made or asked last.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Rank 0 tells a person and a file how it goes; the other ranks say nothing.
class Reporter {
 public:
  Reporter(const sherd::World& world, const Program& program, const Settings& settings, int64_t done)
      : word_(program.counted_word()),
        counted_(static_cast<double>(program.counted(settings))),
        speaks_(world.rank() == 0) {
    if (!speaks_) return;
    progress_.emplace(static_cast<int>(settings.steps), static_cast<int>(settings.print_every));
    metrics_.emplace(settings.out + "/metrics.csv", word_, done);
  }

  template <class... Arguments>
  void say(fmt::format_string<Arguments...> form, Arguments&&... arguments) const {
    if (!speaks_) return;
    fmt::print("{}\n", fmt::format(form, std::forward<Arguments>(arguments)...));
    std::fflush(stdout);
  }

  void add(int64_t step, double loss, double gradient_norm, double seconds) {
    if (!speaks_) return;
    metrics_->add({step, loss, gradient_norm, counted_ / seconds});
    // One step of many is noise: what is shown follows the last ten or so.
    seconds_ = seconds_ == 0 ? seconds : 0.9 * seconds_ + 0.1 * seconds;
    progress_->show(static_cast<int>(step), fmt::format("loss {:.4f}  {:.0f} {}/s", loss, counted_ / seconds_, word_));
  }

  /// The line of the bar ends here; what follows begins another.
  void finish() { progress_.reset(); }

 private:
  std::string word_;
  double counted_;
  bool speaks_;
  std::optional<Progress> progress_;
  std::optional<Metrics> metrics_;
  double seconds_ = 0;
};

std::string joined(int argc, char** argv) {
  std::string words;
  for (int i = 0; i < argc; ++i) words += fmt::format("{}{}", i == 0 ? "" : " ", argv[i]);
  return words;
}

int64_t weights_of(const torch::nn::Module& module) {
  int64_t weights = 0;
  for (const auto& parameter : module.parameters()) weights += parameter.numel();
  return weights;
}

void check_loss(const Program& program, double loss, int64_t step) {
  if (std::isfinite(loss)) return;
  throw std::runtime_error(
      ErrorText(program.name(), "the loss is no number any more")
          .fact("step", fmt::format("{}", step))
          .help("a smaller --learning-rate or --clip, or a longer --warmup, from the last checkpoint"));
}

TrainingOptions training_options(const Settings& settings) {
  return {.learning_rate = settings.learning_rate,
          .warmup = settings.warmup,
          // Without a bound the norm is still written down.
          .clip = settings.clip > 0 ? settings.clip : std::numeric_limits<double>::infinity(),
          .fully_sharded = settings.fully_sharded,
          .uses_bfloat16 = settings.dtype == "bfloat16",
          .fuses_step = true};
}

int train(const sherd::World& world, Program& program, Settings settings, const std::string& command) {
  share_cores(world);
  complete(program, settings, world.size());
  check_same_settings(world, program, to_json_text(program, settings));
  sherd::CheckpointManager checkpoints(settings.out + "/checkpoints", {.keep_last = settings.keep});
  check_on_first_rank(world, [&] { prepare_folder(program, settings, checkpoints); });

  sherd::manual_seed(settings.seed);
  const auto mesh = sherd::init_device_mesh(settings.device, {settings.dp, settings.tp}, {"dp", "tp"});
  Training trainer(program.make_task(settings), training_options(settings), mesh);
  auto state = trainer.state();
  const auto found = checkpoints.load_latest(state);
  if (found) trainer.go_on_from(state);

  Reporter reporter(world, program, settings, trainer.steps());
  reporter.say("{} of {} weights on mesh {}{}: {}, {}, {} a step", program.model_text(), weights_of(trainer.module()),
               sherd::to_string(mesh), settings.fully_sharded ? ", fully sharded" : "", settings.device, settings.dtype,
               program.batch_text(settings));
  for (const auto& warning : checkpoints.warnings()) reporter.say("warning: {}", warning);
  if (found) reporter.say("going on after step {}, from {}", *found, checkpoints.path_of(*found));

  int64_t saved = trainer.steps();
  int signal = 0;
  Stopwatch stopwatch;
  while (trainer.steps() < settings.steps && (signal = stop_signal_of(world.group())) == 0) {
    stopwatch.lap();
    const double loss = trainer.step();
    const double seconds = stopwatch.lap();
    check_loss(program, loss, trainer.steps());
    reporter.add(trainer.steps(), loss, trainer.gradient_norm(), seconds);
    if (trainer.steps() % settings.save_every == 0) {
      checkpoints.save_async(trainer.steps(), trainer.state());
      saved = trainer.steps();
    }
  }
  if (saved < trainer.steps()) checkpoints.save(trainer.steps(), trainer.state());
  checkpoints.wait();

  reporter.finish();
  if (signal == 0) {
    reporter.say("{} steps are done; checkpoints, metrics.csv and config.json are in {}", trainer.steps(),
                 settings.out);
    return 0;
  }
  reporter.say("stopped by {} after step {}, which is saved; to go on, run the same again:\n  {}",
               signal == SIGTERM ? "SIGTERM" : "SIGINT", trainer.steps(), command);
  return signal == SIGTERM ? 0 : 128 + signal;
}

/// Tells this rank's user, and the other ranks, which would wait for this one.
int fail(const Program& program, const std::string& message) {
  const bool has_prefix = message.starts_with(program.name() + ": ");
  fmt::print(stderr, "{}{}\n", has_prefix ? "" : program.name() + ": ", message);
  if (const auto world = sherd::find_world()) world->fail(message);
  return 1;
}

}  // namespace

int run_program(Program& program, int argc, char** argv) {
  const auto read = read_settings(program, argc, argv);
  if (const int* code = std::get_if<int>(&read)) return *code;
  keep_stop_signals();
  try {
    return train(sherd::init(), program, std::get<Settings>(read), joined(argc, argv));
  } catch (const c10::Error& error) {
    return fail(program, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(program, error.what());
  }
}
