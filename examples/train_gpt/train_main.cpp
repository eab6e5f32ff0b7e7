// train_gpt: trains a small GPT on the ranks that a launcher starts, saves checkpoints, and goes on where it stopped.
// `train_gpt --help` lists what can be changed; docs/training.md shows it at work.

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "metrics.h"
#include "progress.h"
#include "settings.h"
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

std::string text_of(const Settings& settings) {
  if (settings.text.empty()) return std::string(kText);
  std::string text = read_file(settings.text);
  if (!text.empty()) return text;
  throw std::invalid_argument(ErrorText("train_gpt", "the text cannot be read, or is empty")
                                  .fact("--text", settings.text)
                                  .help("the path of a text file, or none for the story that is built in"));
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
void check_same_settings(const sherd::World& world, const Settings& settings, const std::string& text) {
  const std::string mine = to_json_text(settings) + fmt::format("{:x}", std::hash<std::string>()(text));
  const auto all = sherd::all_gather_text(world.group(), mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw std::runtime_error(ErrorText("train_gpt", "ranks have different settings")
                                 .fact("rank 0", all[0])
                                 .fact(fmt::format("rank {}", rank), all[rank])
                                 .help("start every rank with the same flags, --config and --text"));
  }
}

void check_architecture(const Settings& settings, const std::string& before, int64_t saved) {
  const auto differences = architecture_differences(before, to_json_text(settings));
  if (differences.empty()) return;
  ErrorText error("train_gpt", "the checkpoints are of another architecture");
  error.fact("checkpoints", fmt::format("{}, the last of step {}", settings.out, saved));
  for (const auto& each : differences) error.fact("other", each);
  throw std::invalid_argument(error.help("the settings that it began with, or another --out"));
}

/// A folder that is there, and the settings in it for those who ask later.
void prepare_folder(const Settings& settings, const sherd::CheckpointManager& checkpoints) {
  std::error_code error;
  std::filesystem::create_directories(settings.out, error);
  const std::string path = settings.out + "/config.json";
  if (const auto steps = checkpoints.steps(); !steps.empty())
    check_architecture(settings, read_file(path), steps.back());
  std::ofstream file(path);
  file << to_json_text(settings);
  if (!file.flush()) {
    throw std::runtime_error(
        ErrorText("train_gpt", "the folder cannot be written").fact("file", path).help("--out FOLDER"));
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
  Reporter(const sherd::World& world, const Settings& settings, int64_t done)
      : settings_(settings), speaks_(world.rank() == 0) {
    if (!speaks_) return;
    progress_.emplace(static_cast<int>(settings.steps), static_cast<int>(settings.print_every));
    metrics_.emplace(settings.out + "/metrics.csv", done);
  }

  template <class... Arguments>
  void say(fmt::format_string<Arguments...> form, Arguments&&... arguments) const {
    if (!speaks_) return;
    fmt::print("{}\n", fmt::format(form, std::forward<Arguments>(arguments)...));
    std::fflush(stdout);
  }

  void add(int64_t step, double loss, double gradient_norm, double seconds) {
    if (!speaks_) return;
    const auto tokens = static_cast<double>(settings_.training.batch * settings_.training.model.length);
    metrics_->add({step, loss, gradient_norm, tokens / seconds});
    // One step of many is noise: what is shown follows the last ten or so.
    seconds_ = seconds_ == 0 ? seconds : 0.9 * seconds_ + 0.1 * seconds;
    progress_->show(static_cast<int>(step), fmt::format("loss {:.4f}  {:.0f} tokens/s", loss, tokens / seconds_));
  }

  /// The line of the bar ends here; what follows begins another.
  void finish() { progress_.reset(); }

 private:
  const Settings& settings_;
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

int64_t weights_of(Gpt& model) {
  int64_t weights = 0;
  for (const auto& parameter : model->parameters()) weights += parameter.numel();
  return weights;
}

void check_loss(double loss, int64_t step) {
  if (std::isfinite(loss)) return;
  throw std::runtime_error(
      ErrorText("train_gpt", "the loss is no number any more")
          .fact("step", fmt::format("{}", step))
          .help("a smaller --learning-rate or --clip, or a longer --warmup, from the last checkpoint"));
}

int train(const sherd::World& world, Settings settings, const std::string& command) {
  share_cores(world);
  const std::string text = text_of(settings);
  const Corpus corpus(text);
  complete(settings, world.size(), corpus);
  check_same_settings(world, settings, text);
  sherd::CheckpointManager checkpoints(settings.out + "/checkpoints", {.keep_last = settings.keep});
  check_on_first_rank(world, [&] { prepare_folder(settings, checkpoints); });

  sherd::manual_seed(settings.training.seed);
  const auto mesh = sherd::init_device_mesh(settings.device, {settings.dp, settings.tp}, {"dp", "tp"});
  Trainer trainer(make_model(settings.training), corpus, settings.training, mesh);
  auto state = trainer.state();
  const auto found = checkpoints.load_latest(state);
  if (found) trainer.go_on_from(state);

  Reporter reporter(world, settings, trainer.steps());
  reporter.say("a GPT of {} weights on mesh {}{}: {}, {}, {} sequences of {} characters a step",
               weights_of(trainer.model()), sherd::to_string(mesh),
               settings.training.fully_sharded ? ", fully sharded" : "", settings.device, settings.dtype,
               settings.training.batch, settings.training.model.length);
  for (const auto& warning : checkpoints.warnings()) reporter.say("warning: {}", warning);
  if (found) reporter.say("going on after step {}, from {}", *found, checkpoints.path_of(*found));

  int64_t saved = trainer.steps();
  int signal = 0;
  Stopwatch stopwatch;
  while (trainer.steps() < settings.steps && (signal = stop_signal_of(world.group())) == 0) {
    stopwatch.lap();
    const double loss = trainer.step();
    const double seconds = stopwatch.lap();
    check_loss(loss, trainer.steps());
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
int fail(const std::string& message) {
  const bool has_prefix = message.starts_with("train_gpt: ");
  fmt::print(stderr, "{}{}\n", has_prefix ? "" : "train_gpt: ", message);
  if (const auto world = sherd::find_world()) world->fail(message);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto read = read_settings(argc, argv);
  if (const int* code = std::get_if<int>(&read)) return *code;
  keep_stop_signals();
  try {
    return train(sherd::init(), std::get<Settings>(read), joined(argc, argv));
  } catch (const c10::Error& error) {
    return fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
