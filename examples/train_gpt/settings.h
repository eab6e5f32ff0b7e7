#pragma once
// What train_gpt can be told, by flags or by a file of JSON.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "train.h"

struct Settings {
  int64_t dp = 0;  // 0: the ranks that tp leaves
  int64_t tp = 1;
  TrainOptions training = {};  // its vocabulary is the text's
  double clip = 1;             // the largest norm of the gradients; 0: any
  int64_t steps = 1000;
  std::string text = {};  // a file; empty: the demo's
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string out = "runs/gpt";
  int64_t save_every = 100;
  int64_t keep = 3;          // checkpoints; 0: all
  int64_t print_every = 10;  // steps, where no bar can be drawn
};

/// Reads the command line, and the file that --config names: flags win over it. Where there is nothing to train it has
/// printed why (the help, or what is wrong), and returns the exit code.
std::variant<Settings, int> read_settings(int argc, char** argv);

/// Fills in what follows from the number of ranks and from the text. Throws std::invalid_argument for settings that do
/// not go together; since every rank has the same settings, all of them throw.
void complete(Settings& settings, int64_t ranks, const Corpus& corpus);

/// The settings as --config takes them.
std::string to_json_text(const Settings& settings);

/// What of the architecture is another in two texts of to_json_text: "width: 64, here 128". A checkpoint of one cannot
/// be loaded into the other.
std::vector<std::string> architecture_differences(const std::string& there, const std::string& here);
