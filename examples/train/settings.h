#pragma once
// What every training program can be told, by flags or by a file of JSON.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

class Program;

struct Settings {
  int64_t dp = 0;  // 0: the ranks that tp leaves
  int64_t tp = 1;
  bool fully_sharded = false;
  int64_t steps = 1000;
  int64_t batch = 8;
  double learning_rate = 1e-3;
  int64_t warmup = 0;
  double clip = 1;  // the largest norm of the gradients; 0: any
  std::string dtype = "float32";
  uint64_t seed = 20;
  std::string device = "cpu";
  std::string out = "runs/gpt";
  int64_t save_every = 100;
  int64_t keep = 3;          // checkpoints; 0: all
  int64_t print_every = 10;  // steps, where no bar can be drawn
};

/// Reads the command line, and the file that --config names: flags win over it. Where there is nothing to train
/// it has printed why (the help, or what is wrong), and returns the exit code.
std::variant<Settings, int> read_settings(Program& program, int argc, char** argv);

/// Fills in what follows from the number of ranks and from the data. Throws std::invalid_argument for settings that do
/// not go together; since every rank has the same settings, all of them throw.
void complete(Program& program, Settings& settings, int64_t ranks);

/// The settings and the program's options as --config takes them.
std::string to_json_text(const Program& program, const Settings& settings);

/// What of the architecture is another in two texts of to_json_text: "width: 64, here 128". A checkpoint of one cannot
/// be loaded into the other.
std::vector<std::string> architecture_differences(const Program& program, const std::string& there,
                                                  const std::string& here);
