// libFuzzer: every row of a table of rules.

#include <cstddef>
#include <cstdint>

#include "fuzz/format_check.h"
#include "rules/rule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::rules;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const Rule rule = parse_rule(input);
    must_hold(rule.num_inputs <= kMaxOperands && rule.num_outputs <= kMaxOperands && rule.num_factors <= kMaxFactors,
              "more than a rule can hold");
    for (const auto& operands : {rule.inputs, rule.outputs}) {
      for (const OperandPattern& operand : operands) {
        must_hold(operand.ndim <= kMaxDims, "more dims than an operand can hold");
        for (size_t d = 0; d < operand.ndim; ++d) {
          must_hold(operand.dims[d] >= kOne && operand.dims[d] < rule.num_factors, "a dim without a factor");
        }
      }
    }
  } catch (const RuleError& error) {
    must_hold(error.at <= input.size(), "a fault outside of the text");
  }
  return 0;
}
