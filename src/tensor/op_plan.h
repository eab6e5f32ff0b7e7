#pragma once
// What an operator does on this rank for one combination of specs and arguments, decided once and kept.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/redistribute.h"
#include "tensor/op_info.h"
#include "tensor/spec.h"

namespace sherd::detail {

struct OpPlan;

/// Runs an operator whose local form is not simply the operator on local tensors. The stack holds the arguments with
/// their tensors already local and moved; it ends with the local results.
using LocalKernel = void (*)(const c10::OperatorHandle& op, const OpPlan& plan, torch::jit::Stack& stack);

struct InputPlan {
  bool moves = false;
  plan::Redistribution move;
  Placements from;
  Placements to;
  Dims shape;
};

struct OutputPlan {
  Placements placements = {};
  Dims sizes = {};                  // global size of sharded dims, -1: as in the local result
  std::vector<SpecPtr> known = {};  // of the result, of each of them for a list, where that follows from the call alone
  SpecPtr spec = {};                // else: of the last result
  Dims local_sizes = {};            // of the last result: with the same, `spec` holds again
  bool checked = false;             // a local result was what the rule says
  uint64_t gathers = 0;             // of the result's spec
};

struct SizeEdit {
  int argument = 0;
  Dims sizes;
};

struct IntEdit {
  int argument = 0;
  int64_t value = 0;
};

struct OpPlan {
  std::optional<DeviceMesh> mesh;
  std::vector<SpecPtr> specs;       // of the call's tensors: a plan is found by their addresses, so it keeps them
  std::vector<InputPlan> inputs;    // one per tensor of the call, lists laid flat
  std::vector<OutputPlan> outputs;  // the last one speaks for all further results
  std::vector<SizeEdit> edits;
  std::vector<IntEdit> int_edits;
  LocalKernel kernel = nullptr;
  bool direct = false;  // nothing moves, and the operator runs on local tensors as it is
  bool is_view = false;
  bool any_moves = false;
  bool no_rule = false;      // runs whole on every rank
  bool writes_back = false;  // a written argument was moved: its new value goes back to where it came from
  bool pads = false;         // this rank has no rows, and the operator may not know what to do with none
  bool adds = false;         // an operand is added in (a bias): it counts even where the rest is padding
  bool broadcasts = false;   // drawn at random: replicas take the values of the first
  int64_t bytes = 0;
  Dims dims;                // of squeeze: the dims that go
  int64_t mask_offset = 0;  // of a masked factor: this rank's first row and their number
  int64_t mask_rows = 0;
  int64_t all_rows = 0;  // of all ranks together
};

/// The plan for the call on the stack. Throws what is wrong with it, alike on every rank.
std::unique_ptr<OpPlan> make_plan(const c10::OperatorHandle& op, const OpInfo& info, const torch::jit::Stack& stack);

}  // namespace sherd::detail
