#include <algorithm>

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

// take(self, index): elements by their place in the whole, which every rank needs.
std::optional<BoundRule> take(const OpCall& call) {
  Builder builder(call);
  const Dims& index = builder.shape(1);
  BoundOperand& output = builder.output(index.size());
  for (size_t d = 0; d < index.size(); ++d) {
    output.dims[d] = builder.rule.inputs[1].dims[d] = {builder.factor(index[d])};
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

// scatter(self, dim, index, src or value): along the dim the last write counts, so it is whole.
std::optional<BoundRule> scatter(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape(0);
  const auto dim = picked_dim(call, shape.size());
  if (!dim || builder.shape(1).size() != shape.size()) return std::nullopt;
  const bool has_source = call.tensors.size() > 2;
  if (has_source && builder.shape(2).size() != shape.size()) return std::nullopt;
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  auto& in = builder.rule.inputs;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!go_together(builder, d, *dim) || (has_source && builder.shape(2)[d] != shape[d])) continue;
    output.dims[d] = in[0].dims[d] = in[1].dims[d] = {builder.factor(shape[d])};
    if (has_source) in[2].dims[d] = output.dims[d];
  }
  if (has_source && call.overload.starts_with("src")) builder.rule.linear = {0b101};
  return builder.done();
}

// index_add(self, dim, index, source): rows of the source are added to the rows that the index names. index_copy and
// index_fill put them there, index_reduce multiplies them in or takes the larger.
std::optional<BoundRule> index_add(const OpCall& call) {
  Builder builder(call);
  const Dims& shape = builder.shape(0);
  const auto dim = picked_dim(call, shape.size());
  if (!dim || builder.shape(1).size() != 1) return std::nullopt;
  const bool adds = call.op.starts_with("aten::index_add");
  const bool has_source = call.tensors.size() > 2 && builder.shape(2).size() == shape.size();
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  auto& in = builder.rule.inputs;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d == *dim || (has_source && builder.shape(2)[d] != shape[d])) continue;
    output.dims[d] = in[0].dims[d] = {builder.factor(shape[d])};
    if (has_source) in[2].dims[d] = output.dims[d];
  }
  if (adds && has_source) {
    in[1].dims[0] = in[2].dims[*dim] = {builder.factor(builder.shape(1)[0], FactorKind::reduce)};
    in[0].added = true;
  }
  if (has_source && !call.op.starts_with("aten::index_reduce")) builder.rule.linear = {0b101};
  return builder.done();
}

// What x[indices] has where: the dims that are not indexed, and, in one place, those of the indices together.
struct Indexed {
  std::vector<bool> is_indexed;  // per dim of self
  Dims together;                 // the shape that the indices broadcast to
  size_t place = 0;              // of these dims in the result
};

// `indices` are inputs 1 to last; nothing where the shape of the result is not known before its values are.
std::optional<Indexed> read_indices(const OpCall& call, size_t last) {
  Indexed result;
  result.is_indexed.resize(call.tensors[0].shape.size(), false);
  size_t first = result.is_indexed.size();
  size_t end = 0;
  for (size_t i = 1; i <= last; ++i) {
    const TensorArgument& index = call.tensors[i];
    if (!index.present) continue;
    if (index.is_mask || i > result.is_indexed.size()) return std::nullopt;
    result.is_indexed[i - 1] = true;
    first = std::min(first, i - 1);
    end = i;
    if (index.shape.size() > result.together.size()) {
      result.together.insert(result.together.begin(), index.shape.size() - result.together.size(), 1);
    }
    for (size_t d = 1; d <= index.shape.size(); ++d) {
      int64_t& size = result.together[result.together.size() - d];
      const int64_t own = index.shape[index.shape.size() - d];
      if (size == 1) size = own;
      if (own != 1 && own != size) return std::nullopt;
    }
  }
  bool adjacent = true;
  for (size_t d = first; d < end; ++d) adjacent &= result.is_indexed[d];
  result.place = adjacent && first < end ? first : 0;
  return result;
}

// index(self, indices): x[rows, :, columns]. Dims that are not indexed are free, and so are those of the indices.
std::optional<BoundRule> index(const OpCall& call) {
  const auto indexed = read_indices(call, call.tensors.size() - 1);
  if (!indexed) return std::nullopt;
  Builder builder(call);
  std::vector<DimFactors> dims;
  for (size_t d = 0; d < builder.shape().size(); ++d) {
    if (indexed->is_indexed[d]) continue;
    dims.push_back({builder.factor(builder.shape()[d])});
    builder.rule.inputs[0].dims[d] = dims.back();
  }
  std::vector<DimFactors> together;
  for (const int64_t size : indexed->together) {
    together.push_back(size == 1 ? DimFactors() : DimFactors{builder.factor(size)});
  }
  for (size_t i = 1; i < call.tensors.size(); ++i) {
    if (!builder.present(i)) continue;
    const Dims& shape = builder.shape(i);
    for (size_t d = 1; d <= shape.size(); ++d) {
      if (shape[shape.size() - d] != 1) {
        builder.rule.inputs[i].dims[shape.size() - d] = together[together.size() - d];
      }
    }
  }
  dims.insert(dims.begin() + static_cast<int64_t>(indexed->place), together.begin(), together.end());
  builder.output(dims.size()).dims = dims;
  return builder.linear();
}

// index_put(self, indices, values, accumulate): dims that are not indexed are free. What is added up may come from
// anywhere, self being Partial then.
std::optional<BoundRule> index_put(const OpCall& call) {
  const size_t values = call.tensors.size() - 1;
  const auto indexed = read_indices(call, values - 1);
  if (!indexed) return std::nullopt;
  Builder builder(call);
  const Dims& shape = builder.shape();
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  std::vector<DimFactors> dims;  // of what is put, as x[indices] has them
  for (size_t d = 0; d < shape.size(); ++d) {
    if (indexed->is_indexed[d]) continue;
    output.dims[d] = builder.rule.inputs[0].dims[d] = {builder.factor(shape[d])};
    dims.push_back(output.dims[d]);
  }
  std::vector<DimFactors> together(indexed->together.size());
  if (call.integer("accumulate", 0) != 0) {
    for (size_t d = 0; d < together.size(); ++d) {
      if (indexed->together[d] != 1) together[d] = {builder.factor(indexed->together[d], FactorKind::reduce)};
    }
    builder.rule.inputs[0].added = true;
  }
  for (size_t i = 1; i < values; ++i) {
    const Dims& index = builder.shape(i);
    for (size_t d = 1; d <= index.size() && builder.present(i); ++d) {
      if (index[index.size() - d] != 1) builder.rule.inputs[i].dims[index.size() - d] = together[together.size() - d];
    }
  }
  dims.insert(dims.begin() + static_cast<int64_t>(indexed->place), together.begin(), together.end());
  const Dims& put = builder.shape(values);
  for (size_t d = 1; d <= std::min(put.size(), dims.size()); ++d) {
    const DimFactors& factors = dims[dims.size() - d];
    const bool whole_size =
        !factors.empty() && builder.rule.factors[static_cast<size_t>(factors.front())].size == put[put.size() - d];
    if (whole_size) builder.rule.inputs[values].dims[put.size() - d] = factors;
  }
  if (values < 60) builder.rule.linear = {1 | uint64_t{1} << values};
  // A padded index would name row 0, and a value that is broadcast is no row of zeros: nothing is put where there is no
  // index, and torch knows that.
  builder.rule.takes_empty = true;
  return builder.done();
}

}  // namespace

std::span<const FunctionRow> indexing_functions() {
  static constexpr FunctionRow kRows[] = {
      {"index_select", index_select, 2, 1, "dim"},
      {"take", take, 2},
      {"gather", gather, 2, 1, "dim"},
      {"scatter_add", scatter_add, 3, 1, "dim"},
      {"scatter scatter_reduce", scatter, 2, 1, "dim"},
      {"index_add index_copy index_fill index_reduce", index_add, 2, 1, "dim"},
      {"index _unsafe_index", index, 2},
      {"index_put _index_put_impl _unsafe_index_put", index_put, 3},
  };
  return kRows;
}

std::span<const Row> indexing_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"multinomial",              "* d -> * s               | whole d s, empty"},
      {"embedding",                "v d, * -> * d             | mask v, linear 0"},
      {"_embedding_bag_per_sample_weights_backward",
                                   "b d, v d, -, -, - -> n     | whole b v n, reduce d, linear 0 1"},
      {"bucketize.Tensor",         "*, k -> *                 | whole k"},
      {"searchsorted.Tensor",      "k, *, k -> *              | whole k"},
      {"searchsorted.Tensor",      "* k, * q, * k -> * q      | whole k"},
      {"isin.Tensor_Tensor",       "*, k -> *                 | reduce(max) k, when invert=0"},
      {"isin.Tensor_Tensor",       "*, k -> *                 | reduce(min) k, when invert=1"},
      {"isin.Tensor_Tensor",       "*, - -> *"},
      {"isin.Tensor_Scalar",       "* -> *"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
