#pragma once
// A rule applied to the shapes of one call.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rules/rule.h"
#include "sherd/box.h"

namespace sherd::rules {

struct BoundFactor {
  int64_t size = 1;
  FactorKind kind = FactorKind::pass;
  ReduceOp op = ReduceOp::sum;
  std::string name = {};  // as in the rule's text; empty where the factor has none
};

/// The factors of one dim, the outermost first. None: the dim is not sharded (size 1, or broadcast).
using DimFactors = std::vector<int16_t>;

/// A dim that holds every `step`-th row of its factor from `start` on: cut where the factor is cut, it has cuts of its
/// own.
struct Window {
  size_t dim = 0;
  int64_t start = 0;
  int64_t step = 1;
  int64_t size = 0;  // rows of the dim

  /// How many rows of the dim stand before row `row` of the factor.
  int64_t rows_before(int64_t row) const {
    return std::min(size, (std::max<int64_t>(0, row - start) + step - 1) / step);
  }
};

struct BoundOperand {
  std::vector<DimFactors> dims;
  std::optional<Window> window = {};
  bool added = false;
  bool unused = false;                 // absent, or whole whatever the factors do
  std::vector<int16_t> same_for = {};  // of an output: factors that it lacks and that do not change it
  Dims sizes = {};                     // of an output: the sizes of dims without factors, -1 where not known
};

/// An int[] argument that holds the size of an output and becomes the local one.
struct SizeArgument {
  int argument = 0;  // index among the operator's arguments
  int output = 0;
};

/// An int argument that holds the size of an input's dim and becomes the local one.
struct IntArgument {
  int argument = 0;
  int input = 0;
  int dim = 0;
};

/// Two int arguments that hold the first row of a window and the row after its last, and become local ones.
struct WindowArguments {
  int start = 0;
  int end = 0;
};

struct BoundRule {
  std::vector<BoundFactor> factors;
  std::vector<BoundOperand> inputs;   // one per tensor of the call, in order, those of lists included
  std::vector<BoundOperand> outputs;  // one per tensor returned
  std::vector<uint64_t> linear;       // bit i: input i
  uint64_t shape_only = 0;            // bit i: only the shape of input i matters, so a Partial need not be reduced
  std::vector<SizeArgument> sizes;
  std::vector<IntArgument> ints;
  std::optional<WindowArguments> window = {};  // of the one operand that has a window
  bool takes_empty = false;                    // the operator knows what to do with a tensor without rows
};

/// Whether a set of inputs, one bit each, has this one. Calls may have more inputs than a set can hold.
inline bool has_input(uint64_t set, size_t input) { return input < 64 && (set >> input & 1U) != 0; }

/// A name for each factor: its own, or a letter that no other has.
std::vector<std::string> factor_names(const BoundRule& rule);

/// The operands as a rule writes them, with every dim named: "a (b c) -> a b c".
std::string operands_text(const BoundRule& rule);

/// The size of an output; -1 for dims of which the rule does not say it.
Dims output_shape(const BoundRule& rule, size_t output);

/// "i k, k j -> i j | i=64, k=32 reduce(sum), j=16, linear 0 1".
std::string to_string(const BoundRule& rule);

}  // namespace sherd::rules
