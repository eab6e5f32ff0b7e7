#include "debug/advice.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <tuple>

#include "layout/reordered.h"
#include "plan/redistribute.h"
#include "sherd/explain.h"

namespace sherd::detail {
namespace {

// Another placement of one operand, and what the operator moves with it.
struct Change {
  size_t operand = 0;
  TensorText now;
  TensorText then;
  int64_t bytes = 0;
  bool partial = false;  // a result has to be summed later
  bool whole = false;    // on the axis
  int kind = 0;          // 0: a parameter, 1: the tensor that is moved, 2: another one
};

bool has_partial(const Explanation& explanation) {
  for (const auto& output : explanation.outputs) {
    for (const Placement& p : output.placements) {
      if (is_partial(p)) return true;
    }
  }
  return false;
}

// nullopt where the planner does not know the call.
std::optional<Explanation> planned(const OperatorCall& call, const Mesh& mesh) {
  try {
    return explain(call, mesh);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

// Tried in turn: for each axis along which the operand is moved, every other placement of each operand.
std::optional<Change> best_change(const MovingCall& moving, size_t moved) {
  const auto before = planned(moving.call, moving.mesh);
  if (!before || before->bytes == 0) return std::nullopt;
  std::optional<Change> best;
  // A tensor that is made in parts and wanted whole is gathered somewhere: that comes last.
  const auto rank = [](const Change& c) {
    return std::tuple(c.bytes > 0, c.whole && c.kind > 0, c.partial, c.kind, c.whole, c.bytes);
  };
  const Placements& from = moving.call.operands[moved]->placements;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis] == moving.operands[moved].to[axis]) continue;
    for (size_t j = 0; j < moving.call.operands.size(); ++j) {
      const auto& operand = moving.call.operands[j];
      if (!operand) continue;
      std::vector<Placement> choices = {Replicate()};
      for (size_t d = 0; d < operand->shape.size(); ++d) {
        if (operand->shape[d] > 1) choices.push_back(Shard(static_cast<int64_t>(d)));
      }
      for (const Placement& choice : choices) {
        const Placement& now = operand->placements[axis];
        if (choice == now || (is_partial(now) && is_replicate(choice))) continue;
        OperatorCall call = moving.call;
        call.operands[j]->placements[axis] = choice;
        const auto after = planned(call, moving.mesh);
        if (!after || after->bytes >= before->bytes) continue;
        Change change{j, *operand, *call.operands[j], after->bytes, has_partial(*after), is_replicate(choice), 0};
        if (moving.operands[j].parameter.empty()) change.kind = j == moved ? 1 : 2;
        if (!best || rank(change) < rank(*best)) best = std::move(change);
      }
    }
  }
  return best;
}

std::string told(const MovingCall& moving, const Change& change) {
  const MovingCall::Operand& operand = moving.operands[change.operand];
  std::string text;
  if (operand.parameter.empty()) {
    text = fmt::format("operand {} as {}", change.operand, to_string(change.then, moving.mesh));
  } else {
    const auto shown = [&](const Placements& p) { return to_string(operand.transposed ? reordered(p, {1, 0}) : p); };
    text =
        fmt::format("{} as {}, not {}", operand.parameter, shown(change.then.placements), shown(change.now.placements));
  }
  text += change.bytes == 0 ? ": then nothing moves here"
                            : fmt::format(": then {} move here", plan::bytes_text(change.bytes));
  if (change.partial) text += ", and the result is Partial, to be summed later";
  return text;
}

Advice of_operand(const CommRecord& record, const MovingCall& moving) {
  const auto moved = static_cast<size_t>(record.operand);
  const MovingCall::Operand& operand = moving.operands[moved];
  const Placements& from = moving.call.operands[moved]->placements;
  if (moving.no_rule) {
    return {"no rule for parts fits this call, so the operator runs whole on every rank",
            fmt::format("sherd::register_rule(\"{}\", ...): docs/rules.md", record.operation)};
  }
  if (operand.gathered) {
    return {fmt::format("gathered for use: fully_shard keeps it in parts over {}", record.axis), ""};
  }
  bool sum = false;
  bool all = false;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (!is_partial(from[axis]) || from[axis] == operand.to[axis]) continue;
    sum = true;
    all |= is_replicate(operand.to[axis]);
  }
  if (sum) {
    return {fmt::format("operand {} is a sum of which each rank of {} has a part, and this operator wants the sum",
                        moved, record.axis),
            all ? "redistribute it to a Shard where it is made: a reduce_scatter is half of an all_reduce" : ""};
  }
  Advice advice{fmt::format("operand {}{} is not cut as this operator can use it beside the others", moved,
                            operand.parameter.empty() ? "" : fmt::format(" ({})", operand.parameter)),
                ""};
  if (const auto change = best_change(moving, moved)) advice.instead = told(moving, *change);
  return advice;
}

Advice of_cause(const CommRecord& record) {
  const std::string& what = record.operation;
  const std::string& axis = record.axis;
  if (what.empty()) return {"the program calls this collective itself", ""};
  if (what == "gradient" || what == "gradient bucket") {
    if (record.collective == "all_reduce") {
      return {fmt::format("needed: the gradient is the sum of what the ranks of {} found", axis), ""};
    }
    if (record.collective == "reduce_scatter") {
      return {fmt::format("needed: each rank of {} keeps its part of the summed gradient", axis), ""};
    }
    return {"needed: a gradient takes the placements of its parameter", ""};
  }
  if (what == "gather on use") {
    const bool again = record.pass == CommPass::backward;
    return {fmt::format("fully_shard keeps these parameters in parts over {} and gathers them for each use", axis),
            again ? "FullyShardOptions{.reshard_after_forward = false}: no second gather, for more memory"
                  : "data_parallel: no gather at all, if every rank has the memory for all parameters"};
  }
  if (what == "tensor parallel") {
    return {"the style of this module asks for it",
            record.collective == "all_reduce"
                ? "RowwiseParallel{.output_layouts = Shard(1)}, sequence parallel: a reduce_scatter, half of it"
                : ""};
  }
  if (what == "redistribute" && record.pass == CommPass::backward) {
    return {"needed: the gradient goes back where its tensor was before it was moved", ""};
  }
  if (what == "redistribute" || what == "distribute_tensor" || what == "from_local") {
    return {"the program asks for it", ""};
  }
  if (what == "full_tensor") {
    return {"the program asks for the whole tensor", "to_local(tensor), where this rank's part is enough"};
  }
  if (what.find("::") == std::string::npos && !what.ends_with("Backward0")) {
    return {fmt::format("needed: {} works this way", what), ""};
  }
  return {fmt::format("{} works along a dim that is cut over {}, so its ranks tell each other what it needs",
                      what.substr(what.find("::") == std::string::npos ? 0 : what.find("::") + 2), axis),
          ""};
}

}  // namespace

Advice advise(const CommRecord& record, const MovingCallPtr& call) {
  return call && record.operand >= 0 ? of_operand(record, *call) : of_cause(record);
}

}  // namespace sherd::detail
