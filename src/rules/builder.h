#pragma once
// For rules that are built by a function: factors are made once and put on the dims of inputs and outputs.

#include <optional>
#include <string_view>
#include <utility>

#include "rules/bound_rule.h"
#include "rules/op_call.h"

namespace sherd::rules {

class Builder {
 public:
  explicit Builder(const OpCall& call) : call_(call) {
    for (const TensorArgument& tensor : call.tensors) {
      BoundOperand operand;
      operand.dims.resize(tensor.shape.size());
      operand.unused = !tensor.present;
      rule.inputs.push_back(std::move(operand));
    }
  }

  int16_t factor(int64_t size, FactorKind kind = FactorKind::pass) {
    rule.factors.push_back({size, kind, ReduceOp::sum});
    return static_cast<int16_t>(rule.factors.size() - 1);
  }
  /// Sizes of its dims that have no factors may be set in `sizes`; they are shown to people, nothing depends on them.
  BoundOperand& output(size_t ndim) {
    BoundOperand operand;
    operand.dims.resize(ndim);
    operand.sizes.assign(ndim, -1);
    rule.outputs.push_back(std::move(operand));
    return rule.outputs.back();
  }
  const Dims& shape(size_t input = 0) const { return call_.tensors[input].shape; }
  bool present(size_t input) const { return input < call_.tensors.size() && call_.tensors[input].present; }
  /// The size argument called `name` becomes the local size of the first output, which is made to measure.
  void localize(std::string_view name) {
    rule.takes_empty = true;
    if (const PlainArgument* argument = call_.find(name)) rule.sizes.push_back({argument->argument, 0});
  }
  /// The rule, linear in its first input.
  std::optional<BoundRule> linear() {
    rule.linear = {1};
    return std::move(rule);
  }
  std::optional<BoundRule> done() { return std::move(rule); }

  BoundRule rule;

 private:
  const OpCall& call_;
};

inline int64_t wrapped(int64_t dim, int64_t ndim) { return dim < 0 ? dim + ndim : dim; }
/// Of a dim that was wrapped: a rule is asked before torch has looked at the arguments.
inline bool in_range(int64_t dim, int64_t ndim) { return dim >= 0 && dim < ndim; }

}  // namespace sherd::rules
