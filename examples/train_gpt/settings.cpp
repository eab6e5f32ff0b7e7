#include "settings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sherd/error.h"

namespace {

using Json = nlohmann::ordered_json;
using sherd::ErrorText;

// "learning_rate" in a file is --learning-rate.
std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// Lets CLI11 read a file of JSON: an object of settings.
class JsonConfig : public CLI::Config {
 public:
  explicit JsonConfig(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const Json json = Json::parse(input, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      throw CLI::ConfigError(ErrorText("--config", "the file is not an object of JSON")
                                 .help("{\"dp\": 2, \"tp\": 2, \"steps\": 1000, \"learning_rate\": 0.001}"),
                             CLI::ExitCodes::ConfigError);
    }
    std::vector<CLI::ConfigItem> found;
    for (const auto& [name, value] : json.items()) {
      if (app_.get_option_no_throw("--" + flag_of(name)) == nullptr || name == "config") {
        throw CLI::ConfigError(ErrorText("--config", "there is no such setting")
                                   .fact("setting", name)
                                   .help("train_gpt --help lists them; learning_rate in the file is --learning-rate"),
                               CLI::ExitCodes::ConfigError);
      }
      CLI::ConfigItem item;
      item.name = flag_of(name);
      item.inputs = {value.is_string() ? value.get<std::string>() : value.dump()};
      found.push_back(std::move(item));
    }
    return found;
  }

  // Required by the class; the program writes its settings itself, with their types.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return "{}"; }

 private:
  const CLI::App& app_;
};

void add_options(CLI::App& app, Settings& settings) {
  TrainOptions& training = settings.training;
  app.option_defaults()->take_last();  // a command can be gone on with: the last word on a setting counts
  const auto at_least = [](double least) { return CLI::Range(least, 1e15); };
  app.add_option("--dp", settings.dp, "ranks that share the batch out (the ranks that --tp leaves)")
      ->check(at_least(0));
  app.add_option("--tp", settings.tp, "ranks that share each layer out (1)")->check(at_least(1));
  app.add_flag("--fsdp", training.fully_sharded, "share parameters, gradients and optimizer state out along dp, too");
  app.add_option("--steps", settings.steps, "steps in all, those of earlier runs among them (1000)")
      ->check(at_least(1));
  app.add_option("--batch", training.batch, "sequences in a step, on all ranks together (8)")->check(at_least(1));
  app.add_option("--layers", training.model.layers, "blocks of the model (4)")->check(at_least(1));
  app.add_option("--width", training.model.width, "of the model (128)")->check(at_least(1));
  app.add_option("--heads", training.model.heads, "of the attention (4)")->check(at_least(1));
  app.add_option("--length", training.model.length, "of a sequence (64)")->check(at_least(1));
  app.add_option("--dropout", training.model.dropout, "probability (0)")->check(CLI::Range(0.0, 0.99));
  app.add_option("--learning-rate", training.learning_rate, "of AdamW (0.001)")->check(at_least(0));
  app.add_option("--warmup", training.warmup, "steps over which the learning rate grows to that (0)")
      ->check(at_least(0));
  app.add_option("--clip", settings.clip, "the largest norm of all gradients together; 0: any (1)")->check(at_least(0));
  app.add_option("--dtype", settings.dtype,
                 "float32, float64, or with --fsdp bfloat16: weights are used in it, and kept in float32 (float32)")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}));
  app.add_option("--seed", training.seed, "of the weights, the batches and the dropout (20)");
  app.add_option("--text", settings.text, "a file to learn (a story that is built in)");
  app.add_option("--device", settings.device, "cpu or cuda (cpu)")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--out", settings.out, "folder for checkpoints, metrics.csv and config.json (runs/gpt)");
  app.add_option("--save-every", settings.save_every, "steps between checkpoints (100)")->check(at_least(1));
  app.add_option("--keep", settings.keep, "checkpoints that are kept; 0: all (3)")->check(at_least(0));
  app.add_option("--print-every", settings.print_every, "steps between lines where there is no terminal (10)")
      ->check(at_least(1));
  app.set_config("--config", "", "a file of JSON with these settings; flags win over it");
  app.config_formatter(std::make_shared<JsonConfig>(app));
}

}  // namespace

std::variant<Settings, int> read_settings(int argc, char** argv) {
  Settings settings;
  CLI::App app(
      "Trains a small GPT on the characters of a text, on as many ranks as its launcher starts: sherd run, torchrun "
      "--no-python, mpirun, srun, or none. The same command goes on where the last one stopped, on another mesh too.",
      "train_gpt");
  add_options(app, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();
    const bool complete = what.find("\n  help: ") != std::string::npos;
    fmt::print(stderr, "train_gpt: {}{}\n", what, complete ? "" : "\n  help: train_gpt --help");
    return 2;
  }
  return settings;
}

void complete(Settings& settings, int64_t ranks, const Corpus& corpus) {
  TrainOptions& training = settings.training;
  GptConfig& model = training.model;
  const auto refuse = [](const ErrorText& text) { throw std::invalid_argument(text.str()); };
  model.vocabulary = corpus.vocabulary();
  training.dtype = settings.dtype == "float64" ? at::kDouble : at::kFloat;
  training.clip = settings.clip > 0 ? settings.clip : std::numeric_limits<double>::infinity();
  training.uses_bfloat16 = settings.dtype == "bfloat16";

  if (settings.dp == 0) settings.dp = std::max<int64_t>(1, ranks / settings.tp);
  if (settings.dp * settings.tp != ranks) {
    const int64_t wanted = settings.dp * settings.tp;
    refuse(ErrorText("train_gpt", "the mesh has another number of ranks than were started")
               .fact("mesh", fmt::format("[dp={}, tp={}], {} ranks", settings.dp, settings.tp, wanted))
               .fact("started", fmt::format("{}", ranks))
               .help(fmt::format("sherd run -n {} -- train_gpt --dp {} --tp {}", wanted, settings.dp, settings.tp)));
  }
  if (training.batch % settings.dp != 0) {
    const int64_t next = (training.batch / settings.dp + 1) * settings.dp;
    refuse(ErrorText("train_gpt", "the batch cannot be shared out evenly")
               .fact("batch", fmt::format("{} sequences", training.batch))
               .fact("dp", fmt::format("{} ranks", settings.dp))
               .help(fmt::format("--batch {}", next)));
  }
  if (training.uses_bfloat16 && !training.fully_sharded) {
    refuse(ErrorText("train_gpt", "bfloat16 is for weights that are gathered when they are used")
               .fact("--dtype", settings.dtype)
               .help("--fsdp --dtype bfloat16"));
  }
  if (model.width % model.heads != 0) {
    refuse(ErrorText("train_gpt", "the heads do not divide the width")
               .fact("width", fmt::format("{}", model.width))
               .fact("heads", fmt::format("{}", model.heads))
               .help(fmt::format("--width {}", (model.width / model.heads + 1) * model.heads)));
  }
  if (corpus.size() <= model.length) {
    refuse(ErrorText("train_gpt", "the text is shorter than a sequence and the character after it")
               .fact("text", fmt::format("{} characters", corpus.size()))
               .fact("length", fmt::format("{}", model.length))
               .help("--length 16, or a longer --text"));
  }
}

std::string to_json_text(const Settings& settings) {
  const TrainOptions& training = settings.training;
  const Json json = {{"dp", settings.dp},
                     {"tp", settings.tp},
                     {"fsdp", training.fully_sharded},
                     {"steps", settings.steps},
                     {"batch", training.batch},
                     {"layers", training.model.layers},
                     {"width", training.model.width},
                     {"heads", training.model.heads},
                     {"length", training.model.length},
                     {"dropout", training.model.dropout},
                     {"learning_rate", training.learning_rate},
                     {"warmup", training.warmup},
                     {"clip", settings.clip},
                     {"dtype", settings.dtype},
                     {"seed", training.seed},
                     {"text", settings.text},
                     {"device", settings.device},
                     {"out", settings.out},
                     {"save_every", settings.save_every},
                     {"keep", settings.keep},
                     {"print_every", settings.print_every}};
  return json.dump(1) + "\n";
}

std::vector<std::string> architecture_differences(const std::string& there, const std::string& here) {
  const Json old = Json::parse(there, nullptr, /*allow_exceptions=*/false);
  const Json now = Json::parse(here);
  std::vector<std::string> differences;
  if (!old.is_object()) return differences;
  for (const char* name : {"layers", "width", "heads", "length"}) {
    if (!old.contains(name) || old[name] == now[name]) continue;
    differences.push_back(fmt::format("{}: {}, here {}", name, old[name].dump(), now[name].dump()));
  }
  return differences;
}
