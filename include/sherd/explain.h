#pragma once
// What an operator does to sharded operands, and why, without running it: its rule, what each mesh axis does, which
// operands move and what that costs. No tensors, no ranks, no libtorch; `sherd explain` prints it.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sherd/costs.h"
#include "sherd/layout.h"

namespace sherd {

/// A plain argument of an operator: None, a bool, a number, a list of integers, or text.
using ArgumentValue = std::variant<std::monostate, bool, int64_t, double, Dims, std::string>;

struct OperatorCall {
  /// "mm", "add_", "max.dim", "mylib::ffn". Without a namespace it is one of torch's own. An overload need not be named
  /// where the rules do not ask for it, or where an argument has its name (max with "dim").
  std::string op;
  /// In the order of the operator's arguments, those of lists one after the other. nullopt: an optional one, left out.
  std::vector<std::optional<TensorText>> operands;
  std::vector<std::pair<std::string, ArgumentValue>> arguments = {};
  std::string rule = {};  // to try instead of the operator's own, in the notation of docs/rules.md
  int outputs = 0;        // 0: as many as the rule has
  /// The result is written to operand 0 and must have its placements. So it is for a name that ends in "_", too.
  bool in_place = false;
};

struct Explanation {
  enum class Source : uint8_t {
    table,     // a row of the tables
    computed,  // from shapes and arguments
    yours,     // register_rule, or OperatorCall::rule
    none,      // the tables do not know the operator: it runs whole on every rank
  };
  struct Factor {
    std::string name;
    int64_t size = 1;
    std::string kind;  // "", "reduce(sum)", "whole", "mask"
  };
  struct Axis {
    std::string factor;                      // that it shards, empty where none
    bool looks_up = false;                   // the factor is looked up by index: ranks answer for their own rows
    std::vector<size_t> partial_operands;    // that stay Partial, where no factor is sharded
    std::optional<ReduceOp> output_is_part;  // of an output that is Partial on this axis
  };
  struct Step {
    std::string text;   // "exchange@tp"
    int64_t bytes = 0;  // received by the rank that receives most
  };
  /// What ranks tell each other where an operator is not gathered along a sharded dim.
  struct Exchange {
    std::string text;   // "all_gather@tp of one candidate per rank"
    int64_t bytes = 0;  // received by the rank that receives most, all times together
    int64_t least = 0;  // less than that where it depends on the data: then between the two
    int64_t times = 1;
  };
  struct Operand {
    std::optional<TensorText> tensor;  // as given
    Placements placements;             // that the operator runs with
    std::vector<Step> steps;           // from the one to the other; none where it stays
    std::vector<Step> back;            // of an operand that is written: from the result to where it was
  };
  struct Output {
    std::string dtype;
    Dims shape;  // -1: the rule does not say
    Placements placements;
  };

  std::string op;
  Mesh mesh;
  Source source = Source::none;
  std::string rule;   // its text; empty where it is computed, or there is none
  std::string bound;  // with every dim of these operands named: "a (b c) -> a b c"
  std::vector<Factor> factors;
  std::vector<Axis> axes;  // one per mesh axis
  std::vector<Operand> operands;
  std::vector<Output> outputs;  // none where the operator runs whole
  int64_t bytes = 0;            // received by a rank at the most, all steps and exchanges together
  int64_t least = 0;            // and at the least, where that depends on the data

  /// Where a dim is sharded that the operator works along, and it is answered without gathering that dim: how, in
  /// words. Then `axes` and `factors` are empty, and `rule` is the one that would have held, moving `bytes_by_rule`.
  std::string along;
  std::vector<Exchange> exchanges;
  int64_t bytes_by_rule = 0;
};

/// Throws std::invalid_argument: an unknown dtype, a bad rule, operands that do not fit the operator's rule.
/// The dtype of an output is guessed: that of the first operand with a fraction, but for comparisons and indices.
Explanation explain(const OperatorCall& call, const Mesh& mesh);

/// What a plan is chosen by, as RedistributeOptions and set_costs (redistribute.h) say it to the library.
struct PlanPreferences {
  enum class Prefer : uint8_t { automatic, bytes, latency };
  Prefer prefer = Prefer::automatic;
  CommCosts costs = {};
};

/// How a tensor would be moved from one layout to another on the mesh, in the words of docs/moving.md:
/// "exchange@tp 6.0 KiB". Throws std::invalid_argument where they are not of one shape and dtype.
std::string explain_redistribution(const TensorText& from, const TensorText& to, const Mesh& mesh,
                                   const PlanPreferences& preferences = {});
/// The same to another mesh: "reduce to [dp=2] 192 B, exchange@dp 64 B".
std::string explain_redistribution(const TensorText& from, const Mesh& mesh, const TensorText& to, const Mesh& to_mesh,
                                   const PlanPreferences& preferences = {});

/// The rules that the tables have for an operator ("mm", "aten::mm", "mylib::ffn"), in the notation of docs/rules.md;
/// "computed from shapes" where a function makes it. None: it runs whole on every rank.
std::vector<std::string> rules_of(const std::string& op);

/// For a terminal, in aligned columns.
std::string to_string(const Explanation& explanation);

/// "f32[64@tp, ?]": an output; `?` for a size that is not known.
std::string to_string(const Explanation::Output& output, const Mesh& mesh);

}  // namespace sherd
