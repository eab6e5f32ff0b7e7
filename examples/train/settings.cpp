#include "settings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "program.h"
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
        throw CLI::ConfigError(
            ErrorText("--config", "there is no such setting")
                .fact("setting", name)
                .help(app_.get_name() + " --help lists them; learning_rate in the file is --learning-rate"),
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

void add_options(CLI::App& app, const Program& program, Settings& settings) {
  const auto at_least = [](double least) { return CLI::Range(least, 1e15); };
  const auto with_default = [](const std::string& text, const auto& value) {
    return fmt::format("{} ({})", text, value);
  };
  app.add_option("--dp", settings.dp, "ranks that share the batch out (the ranks that --tp leaves)")
      ->check(at_least(0));
  app.add_option("--tp", settings.tp, "ranks that share each layer out (1)")->check(at_least(1));
  app.add_flag("--fsdp", settings.fully_sharded, "share parameters, gradients and optimizer state out along dp, too");
  app.add_option("--steps", settings.steps,
                 with_default("steps in all, those of earlier runs among them", settings.steps))
      ->check(at_least(1));
  app.add_option("--batch", settings.batch,
                 with_default(program.rows_word() + " in a step, on all ranks together", settings.batch))
      ->check(at_least(1));
  app.add_option("--learning-rate", settings.learning_rate, with_default("of AdamW", settings.learning_rate))
      ->check(at_least(0));
  app.add_option("--warmup", settings.warmup, "steps over which the learning rate grows to that (0)")
      ->check(at_least(0));
  app.add_option("--clip", settings.clip, "the largest norm of all gradients together; 0: any (1)")->check(at_least(0));
  app.add_option("--dtype", settings.dtype,
                 "float32, float64, or with --fsdp bfloat16: weights are used in it, and kept in float32 (float32)")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}));
  app.add_option("--seed", settings.seed, "of the weights, the batches and the dropout (20)");
  app.add_option("--device", settings.device, "cpu or cuda (cpu)")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--out", settings.out,
                 with_default("folder for checkpoints, metrics.csv and config.json", settings.out));
  app.add_option("--save-every", settings.save_every, "steps between checkpoints (100)")->check(at_least(1));
  app.add_option("--keep", settings.keep, "checkpoints that are kept; 0: all (3)")->check(at_least(0));
  app.add_option("--print-every", settings.print_every, "steps between lines where there is no terminal (10)")
      ->check(at_least(1));
}

}  // namespace

std::variant<Settings, int> read_settings(Program& program, int argc, char** argv) {
  Settings settings = program.defaults();
  CLI::App app(program.about() +
                   ", on as many ranks as its launcher starts: sherd run, torchrun --no-python, mpirun, srun, or none. "
                   "The same command goes on where the last one stopped, on another mesh too.",
               program.name());
  app.option_defaults()->take_last();  // a command can be gone on with: the last word on a setting counts
  add_options(app, program, settings);
  program.add_options(app);
  app.set_config("--config", "", "a file of JSON with these settings; flags win over it");
  app.config_formatter(std::make_shared<JsonConfig>(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();
    const bool complete = what.find("\n  help: ") != std::string::npos;
    const std::string help = complete ? "" : fmt::format("\n  help: {} --help", program.name());
    fmt::print(stderr, "{}: {}{}\n", program.name(), what, help);
    return 2;
  }
  return settings;
}

void complete(Program& program, Settings& settings, int64_t ranks) {
  const auto refuse = [](const ErrorText& text) { throw std::invalid_argument(text.str()); };
  if (settings.dp == 0) settings.dp = std::max<int64_t>(1, ranks / settings.tp);
  if (settings.dp * settings.tp != ranks) {
    const int64_t wanted = settings.dp * settings.tp;
    refuse(ErrorText(program.name(), "the mesh has another number of ranks than were started")
               .fact("mesh", fmt::format("[dp={}, tp={}], {} ranks", settings.dp, settings.tp, wanted))
               .fact("started", fmt::format("{}", ranks))
               .help(fmt::format("sherd run -n {} -- {} --dp {} --tp {}", wanted, program.name(), settings.dp,
                                 settings.tp)));
  }
  if (settings.batch % settings.dp != 0) {
    const int64_t next = (settings.batch / settings.dp + 1) * settings.dp;
    refuse(ErrorText(program.name(), "the batch cannot be shared out evenly")
               .fact("batch", fmt::format("{} {}", settings.batch, program.rows_word()))
               .fact("dp", fmt::format("{} ranks", settings.dp))
               .help(fmt::format("--batch {}", next)));
  }
  if (settings.dtype == "bfloat16" && !settings.fully_sharded) {
    refuse(ErrorText(program.name(), "bfloat16 is for weights that are gathered when they are used")
               .fact("--dtype", settings.dtype)
               .help("--fsdp --dtype bfloat16"));
  }
  program.prepare(settings);
}

std::string to_json_text(const Program& program, const Settings& settings) {
  Json json = {{"dp", settings.dp},
               {"tp", settings.tp},
               {"fsdp", settings.fully_sharded},
               {"steps", settings.steps},
               {"batch", settings.batch},
               {"learning_rate", settings.learning_rate},
               {"warmup", settings.warmup},
               {"clip", settings.clip},
               {"dtype", settings.dtype},
               {"seed", settings.seed},
               {"device", settings.device},
               {"out", settings.out},
               {"save_every", settings.save_every},
               {"keep", settings.keep},
               {"print_every", settings.print_every}};
  const Json own = program.options();
  for (const auto& [name, value] : own.items()) json[name] = value;
  return json.dump(1) + "\n";
}

std::vector<std::string> architecture_differences(const Program& program, const std::string& there,
                                                  const std::string& here) {
  const Json old = Json::parse(there, nullptr, /*allow_exceptions=*/false);
  const Json now = Json::parse(here);
  std::vector<std::string> differences;
  if (!old.is_object()) return differences;
  for (const std::string& name : program.architecture()) {
    if (!old.contains(name) || old[name] == now[name]) continue;
    differences.push_back(fmt::format("{}: {}, here {}", name, old[name].dump(), now[name].dump()));
  }
  return differences;
}
