#pragma once
// A training program around a model: settings, progress, metrics, checkpoints, stops. What is trained is a Program's
// own; all the rest is here, once.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "settings.h"
#include "training.h"

namespace CLI {
class App;
}

/// What one training program has of its own.
class Program {
 public:
  virtual ~Program() = default;
  virtual std::string name() const = 0;          // "train_gpt"
  virtual std::string about() const = 0;         // what it trains, for --help
  virtual std::string rows_word() const = 0;     // "sequences": what a batch is made of
  virtual std::string counted_word() const = 0;  // "tokens": what is counted by the second

  virtual Settings defaults() const { return {}; }
  virtual void add_options(CLI::App& app) = 0;
  /// Reads the data and completes the options. Throws std::invalid_argument where they do not go together; since every
  /// rank has the same, all of them throw.
  virtual void prepare(const Settings& settings) = 0;
  /// The options as --config takes them.
  virtual nlohmann::ordered_json options() const = 0;
  /// Those of them without which a checkpoint cannot be loaded.
  virtual std::vector<std::string> architecture() const = 0;
  /// A number that is another for other data.
  virtual size_t fingerprint() const = 0;

  virtual std::shared_ptr<Task> make_task(const Settings& settings) = 0;
  virtual std::string model_text() const = 0;                          // "a GPT"
  virtual std::string batch_text(const Settings& settings) const = 0;  // "8 sequences of 64 characters"
  virtual int64_t counted(const Settings& settings) const = 0;         // tokens in a step
};

/// Trains on the ranks that a launcher started, saves, and goes on where it stopped. Returns the exit code.
int run_program(Program& program, int argc, char** argv);
