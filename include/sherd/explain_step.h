#pragma once
// What a training step communicates, the dearest first, why it does, and which placement would spare it.
// docs/seeing.md shows it. For one operator without running it: sherd/explain.h.
//
//   std::puts(to_string(sherd::explain_step([&] { train_step(model, batch); }, *model)).c_str());

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sherd/comm_debug.h"

namespace sherd {

struct StepExplanation {
  /// All collectives of one operator or cause, in one module, that move the same.
  struct Item {
    CommPass pass = CommPass::forward;
    std::string operation;                // as in CommRecord
    std::string module;                   // as in CommRecord
    std::vector<std::string> parameters;  // as in CommRecord
    std::string scope;
    std::vector<std::pair<std::string, int64_t>> collectives;  // {"all_gather@tp", 2}: how often in the step
    int64_t bytes = 0;                                         // that this rank receives in all of them together

    std::vector<std::string> operands;  // of the operator: "f32[64@dp, 32]"; none where no operand is moved
    int64_t moved = -1;                 // the operand that is moved
    std::string moved_to;               // "f32[64, 32]"

    std::string why;
    std::string instead;  // what would spare it; empty where it is needed
  };
  int64_t bytes = 0;  // received by this rank in the step
  int64_t calls = 0;
  std::vector<Item> items;  // by bytes, the most first
};

/// Runs the step once, on every rank alike, and explains what this rank communicated in it. What the step throws goes
/// through.
StepExplanation explain_step(const std::function<void()>& step);
/// The same with names of parameters.
StepExplanation explain_step(const std::function<void()>& step, const torch::nn::Module& module);
/// Explains what a mode has seen.
StepExplanation explain_step(const CommDebugMode& debug);

/// For people. "the step communicates nothing\n" where there is nothing.
std::string to_string(const StepExplanation& explanation);
std::string to_json(const StepExplanation& explanation);

}  // namespace sherd
