#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

// new_zeros(size) and the like: of the same size as their tensor they are placed as it is, otherwise whole. Of the
// tensor itself only dtype and device matter.
std::optional<BoundRule> new_like(const OpCall& call) {
  const auto size = call.list("size");
  if (!size) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(size->size());
  output.sizes = *size;
  if (*size == builder.shape()) {
    for (size_t d = 0; d < size->size(); ++d) {
      output.dims[d] = {builder.factor((*size)[d])};
      builder.rule.inputs[0].dims[d] = output.dims[d];
    }
  }
  builder.rule.shape_only = 1;
  builder.localize("size");
  return builder.done();
}

}  // namespace

std::span<const FunctionRow> factory_functions() {
  static constexpr FunctionRow kRows[] = {
      {"new_zeros new_ones new_empty new_full new_empty_strided", new_like, 1, 1, "size"}};
  return kRows;
}

std::span<const Row> factory_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"zeros_like ones_like empty_like full_like rand_like randn_like randint_like", "* -> *  | shape 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
