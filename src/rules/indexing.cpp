#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

// The dim that rows are picked along, of a tensor of `ndim` dims; nothing where there is none.
std::optional<size_t> picked_dim(const OpCall& call, size_t ndim) {
  const int64_t dim = wrapped(call.integer("dim", 0), static_cast<int64_t>(ndim));
  if (!in_range(dim, static_cast<int64_t>(ndim))) return std::nullopt;
  return static_cast<size_t>(dim);
}

// index_select(self, dim, index): rows that a list names.
std::optional<BoundRule> index_select(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape(0);
  const auto dim = picked_dim(call, shape.size());
  if (!dim || builder.shape(1).size() != 1) return std::nullopt;
  BoundOperand& output = builder.output(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool picked = d == *dim;
    output.dims[d] = {builder.factor(picked ? builder.shape(1)[0] : shape[d])};
    (picked ? builder.rule.inputs[1].dims[0] : builder.rule.inputs[0].dims[d]) = output.dims[d];
  }
  return builder.linear();
}

// Dims in which `self` and `index` go together; the index may be smaller, and then it names the first rows.
bool go_together(const Builder& builder, size_t d, size_t dim) {
  return d != dim && builder.shape(0)[d] == builder.shape(1)[d];
}

// gather(self, dim, index): the result has the index's shape.
std::optional<BoundRule> gather(const OpCall& call) {
  Builder builder(call);
  const Dims& index = builder.shape(1);
  const auto dim = picked_dim(call, index.size());
  if (!dim || builder.shape(0).size() != index.size()) return std::nullopt;
  BoundOperand& output = builder.output(index.size());
  output.sizes = index;
  for (size_t d = 0; d < index.size(); ++d) {
    if (d != *dim && !go_together(builder, d, *dim)) continue;
    output.dims[d] = builder.rule.inputs[1].dims[d] = {builder.factor(index[d])};
    if (d != *dim) builder.rule.inputs[0].dims[d] = output.dims[d];
  }
  return builder.linear();
}

// scatter_add(self, dim, index, src): the result has the shape of self. What is scattered along the dim is added up, so
// its rows may lie anywhere, self being Partial then.
std::optional<BoundRule> scatter_add(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape(0);
  const auto dim = picked_dim(call, shape.size());
  const bool fits = builder.shape(1).size() == shape.size() && builder.shape(1) == builder.shape(2);
  if (!dim || !fits) return std::nullopt;
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  auto& in = builder.rule.inputs;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!go_together(builder, d, *dim)) continue;
    output.dims[d] = in[0].dims[d] = in[1].dims[d] = in[2].dims[d] = {builder.factor(shape[d])};
  }
  in[1].dims[*dim] = in[2].dims[*dim] = {builder.factor(builder.shape(1)[*dim], FactorKind::reduce)};
  in[0].added = true;
  builder.rule.linear = {0b101};
  return builder.done();
}

}  // namespace

std::span<const FunctionRow> indexing_functions() {
  static constexpr FunctionRow kRows[] = {
      {"index_select", index_select, 2, 1, "dim"},
      {"gather", gather, 2, 1, "dim"},
      {"scatter_add", scatter_add, 3, 1, "dim"},
  };
  return kRows;
}

std::span<const Row> indexing_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"embedding",                "v d, * -> * d             | mask v, linear 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
