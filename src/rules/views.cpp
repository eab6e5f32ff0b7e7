// Operators whose rule depends on shapes: each function builds the rule that a table row would state.

#include <algorithm>
#include <numeric>

#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

// Every input dim goes to output dim to[d]; -1: it vanishes (its size is 1, or it is whole).
std::optional<BoundRule> rearrange(const OpCall& call, const Dims& to, size_t output_ndim) {
  Builder builder(call);
  BoundOperand& output = builder.output(output_ndim);
  output.sizes.assign(output_ndim, 1);
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d] < 0) continue;
    const int16_t factor = builder.factor(builder.shape()[d]);
    builder.rule.inputs[0].dims[d] = {factor};
    output.dims[static_cast<size_t>(to[d])] = {factor};
  }
  return builder.linear();
}

std::optional<BoundRule> permute(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  const auto dims = call.list("dims");
  if (!dims || static_cast<int64_t>(dims->size()) != ndim) return std::nullopt;
  Dims to(static_cast<size_t>(ndim), -1);
  for (size_t i = 0; i < dims->size(); ++i) {
    const int64_t from = wrapped((*dims)[i], ndim);
    if (!in_range(from, ndim) || to[static_cast<size_t>(from)] >= 0) return std::nullopt;
    to[static_cast<size_t>(from)] = static_cast<int64_t>(i);
  }
  return rearrange(call, to, static_cast<size_t>(ndim));
}

std::optional<BoundRule> transpose(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  Dims to(static_cast<size_t>(ndim));
  std::iota(to.begin(), to.end(), 0);
  const bool is_t = call.find("dim0") == nullptr;
  if (is_t ? ndim == 2 : ndim >= 1) {  // t() of a vector is the vector
    const int64_t a = wrapped(is_t ? 0 : call.integer("dim0", 0), ndim);
    const int64_t b = wrapped(is_t ? 1 : call.integer("dim1", 1), ndim);
    if (!in_range(a, ndim) || !in_range(b, ndim)) return std::nullopt;
    std::swap(to[static_cast<size_t>(a)], to[static_cast<size_t>(b)]);
  }
  return rearrange(call, to, static_cast<size_t>(ndim));
}

std::optional<BoundRule> unsqueeze(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  const int64_t at = wrapped(call.integer("dim", 0), ndim + 1);
  if (!in_range(at, ndim + 1)) return std::nullopt;
  Dims to;
  for (int64_t d = 0; d < ndim; ++d) to.push_back(d < at ? d : d + 1);
  return rearrange(call, to, static_cast<size_t>(ndim) + 1);
}

// Dims of size 1 vanish, all or those named. A local shard may have size 1 where the tensor has not: the engine calls
// the overload that names the dims.
std::optional<BoundRule> squeeze(const OpCall& call) {
  const Dims& shape = call.tensors[0].shape;
  const auto ndim = static_cast<int64_t>(shape.size());
  std::optional<Dims> named = call.list("dim");
  if (named) {
    for (int64_t& d : *named) d = wrapped(d, std::max<int64_t>(ndim, 1));
  }
  Dims to;
  int64_t next = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    const bool meant = !named || std::find(named->begin(), named->end(), d) != named->end();
    to.push_back(meant && shape[static_cast<size_t>(d)] == 1 ? -1 : next++);
  }
  return rearrange(call, to, static_cast<size_t>(next));
}

std::optional<BoundRule> expand(const OpCall& call) {
  auto size = call.list("size");
  if (!size || size->size() < call.tensors[0].shape.size()) return std::nullopt;
  Builder builder(call);
  builder.output(size->size()).sizes = *size;
  const Dims& shape = builder.shape();
  for (size_t d = 1; d <= shape.size(); ++d) {
    const size_t in = shape.size() - d;
    const size_t out = size->size() - d;
    const int64_t wanted = (*size)[out];
    if (wanted != -1 && wanted != shape[in]) continue;
    const int16_t factor = builder.factor(shape[in]);
    builder.rule.inputs[0].dims[in] = {factor};
    builder.rule.outputs[0].dims[out] = {factor};
  }
  builder.localize("size");
  return builder.linear();
}

int64_t product(const Dims& shape) { return numel(shape); }

// The size that view or reshape ends with, -1 replaced by what is left.
std::optional<Dims> wanted_size(const OpCall& call) {
  auto size = call.list("size");
  if (!size) size = call.list("shape");
  if (!size) return std::nullopt;
  const int64_t total = product(call.tensors[0].shape);
  int64_t known = 1;
  for (const int64_t n : *size) known *= n == -1 ? 1 : n;
  for (int64_t& n : *size) {
    if (n == -1) n = known == 0 ? 0 : total / known;
  }
  if (product(*size) != total) return std::nullopt;
  return size;
}

// Splits and merges: the finest factors that both shapes are products of, from the left. Where they have none in
// common, the dims up to the next common border are whole.
std::optional<BoundRule> view(const OpCall& call) {
  const auto size = wanted_size(call);
  if (!size) return std::nullopt;
  Builder builder(call);
  builder.output(size->size()).sizes.assign(size->size(), 1);
  auto& in = builder.rule.inputs[0].dims;
  auto& out = builder.rule.outputs[0].dims;
  const Dims& from = builder.shape();
  const bool empty = product(from) == 0;
  size_t i = 0;
  size_t o = 0;
  int64_t left_in = from.empty() ? 1 : from[0];
  int64_t left_out = size->empty() ? 1 : (*size)[0];
  const auto next_in = [&] {
    ++i;
    left_in = i < from.size() ? from[i] : 1;
  };
  const auto next_out = [&] {
    ++o;
    left_out = o < size->size() ? (*size)[o] : 1;
  };
  while (i < from.size() || o < size->size()) {
    if (i < from.size() && o < size->size() && left_in == left_out && left_in == from[i] && left_out == (*size)[o]) {
      const int16_t factor = builder.factor(left_in);  // a dim that stays as it is, of any size
      in[i].push_back(factor);
      out[o].push_back(factor);
      next_in();
      next_out();
      continue;
    }
    if (empty) break;  // 0 has no factors: the rest is whole
    if (i < from.size() && left_in == 1) {
      next_in();
      continue;
    }
    if (o < size->size() && left_out == 1) {
      next_out();
      continue;
    }
    const int64_t common = std::gcd(left_in, left_out);
    if (common > 1) {
      const int16_t factor = builder.factor(common);
      in[i].push_back(factor);
      out[o].push_back(factor);
      left_in /= common;
      left_out /= common;
      continue;
    }
    int64_t reach_in = left_in;
    int64_t reach_out = left_out;
    in[i].push_back(builder.factor(left_in, FactorKind::whole));
    out[o].push_back(builder.factor(left_out, FactorKind::whole));
    next_in();
    next_out();
    while (reach_in != reach_out) {
      if (reach_in < reach_out) {
        reach_in *= left_in;
        in[i].push_back(builder.factor(left_in, FactorKind::whole));
        next_in();
      } else {
        reach_out *= left_out;
        out[o].push_back(builder.factor(left_out, FactorKind::whole));
        next_out();
      }
    }
  }
  builder.localize(call.find("size") != nullptr ? "size" : "shape");
  return builder.linear();
}

// Some dims are whole, the others stay.
std::optional<BoundRule> whole_along(const OpCall& call, const Dims& dims) {
  Builder builder(call);
  BoundOperand& output = builder.output(builder.shape().size());
  output.sizes = builder.shape();
  for (size_t d = 0; d < builder.shape().size(); ++d) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end()) continue;
    builder.rule.inputs[0].dims[d] = output.dims[d] = {builder.factor(builder.shape()[d])};
  }
  return builder.linear();
}

// flip and roll: the dims that move are whole; roll without dims moves all.
std::optional<BoundRule> move_rows(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  Dims dims = call.list("dims").value_or(Dims());
  for (int64_t& d : dims) d = wrapped(d, ndim);
  if (dims.empty() && call.op == "aten::roll") {
    dims.resize(static_cast<size_t>(ndim));
    std::iota(dims.begin(), dims.end(), 0);
  }
  return whole_along(call, dims);
}

// One dim is whole, the others stay: operators that pick or cut along a dim.
std::optional<BoundRule> along(const OpCall& call, int64_t dim, bool keeps_dim) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  if (!in_range(dim, ndim)) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(static_cast<size_t>(keeps_dim ? ndim : ndim - 1));
  for (int64_t d = 0; d < ndim; ++d) {
    if (d == dim) continue;
    const int16_t factor = builder.factor(builder.shape()[static_cast<size_t>(d)]);
    builder.rule.inputs[0].dims[static_cast<size_t>(d)] = {factor};
    output.dims[static_cast<size_t>(keeps_dim || d < dim ? d : d - 1)] = {factor};
  }
  return builder.linear();
}

std::optional<BoundRule> split(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  if (ndim == 0) return std::nullopt;
  return along(call, wrapped(call.integer("dim", 0), ndim), true);
}

// The rows that slice(start, end, step) names in a dim of `size` rows.
Window window_of(const OpCall& call, size_t dim, int64_t size) {
  const auto within = [&](int64_t row) { return std::clamp<int64_t>(row < 0 ? row + size : row, 0, size); };
  Window window{.dim = dim, .start = within(call.integer("start", 0)), .step = call.integer("step", 1)};
  const int64_t end = std::max(window.start, within(call.integer("end", size)));
  window.size = (end - window.start + window.step - 1) / window.step;
  return window;
}

// Which argument is called `name`; -1 where the call does not have it.
int place_of(const OpCall& call, const char* name) {
  const PlainArgument* argument = call.find(name);
  return argument == nullptr ? -1 : argument->argument;
}

// slice(self, dim, start, end, step): every rank takes its own rows of the window.
std::optional<BoundRule> slice(const OpCall& call) {
  const Dims& shape = call.tensors[0].shape;
  if (shape.empty() || call.integer("step", 1) < 1) return std::nullopt;
  auto rule = whole_along(call, {});
  const auto dim = static_cast<size_t>(wrapped(call.integer("dim", 0), static_cast<int64_t>(shape.size())));
  if (dim >= shape.size()) return std::nullopt;
  rule->outputs[0].window = window_of(call, dim, shape[dim]);
  rule->window = {.start = place_of(call, "start"), .end = place_of(call, "end")};
  return rule;
}

// slice_backward(grad_output, input_sizes, dim, start, end, step): rows outside the window are zero.
std::optional<BoundRule> slice_backward(const OpCall& call) {
  const auto sizes = call.list("input_sizes");
  if (!sizes || sizes->empty() || call.integer("step", 1) < 1) return std::nullopt;
  const auto dim = static_cast<size_t>(wrapped(call.integer("dim", 0), static_cast<int64_t>(sizes->size())));
  if (dim >= sizes->size() || call.tensors[0].shape.size() != sizes->size()) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(sizes->size());
  for (size_t d = 0; d < sizes->size(); ++d) {
    builder.rule.inputs[0].dims[d] = output.dims[d] = {builder.factor((*sizes)[d])};
  }
  builder.rule.inputs[0].window = window_of(call, dim, (*sizes)[dim]);
  builder.rule.window = {.start = place_of(call, "start"), .end = place_of(call, "end")};
  builder.localize("input_sizes");
  return builder.linear();
}

// select_backward(grad_output, input_sizes, dim, index): zero but for one row.
std::optional<BoundRule> select_backward(const OpCall& call) {
  const auto sizes = call.list("input_sizes");
  if (!sizes || sizes->empty()) return std::nullopt;
  const auto dim = static_cast<size_t>(wrapped(call.integer("dim", 0), static_cast<int64_t>(sizes->size())));
  if (dim >= sizes->size() || call.tensors[0].shape.size() + 1 != sizes->size()) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(sizes->size());
  output.sizes = *sizes;
  for (size_t d = 0; d < sizes->size(); ++d) {
    if (d == dim) continue;
    builder.rule.inputs[0].dims[d < dim ? d : d - 1] = output.dims[d] = {builder.factor((*sizes)[d])};
  }
  builder.localize("input_sizes");
  return builder.linear();
}

// diagonal_backward(grad_output, input_sizes, offset, dim1, dim2): zero but for the diagonal.
std::optional<BoundRule> diagonal_backward(const OpCall& call) {
  const auto sizes = call.list("input_sizes");
  if (!sizes) return std::nullopt;
  const auto ndim = static_cast<int64_t>(sizes->size());
  const int64_t dim1 = wrapped(call.integer("dim1", 0), ndim);
  const int64_t dim2 = wrapped(call.integer("dim2", 1), ndim);
  if (!in_range(dim1, ndim) || !in_range(dim2, ndim) || dim1 == dim2) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(sizes->size());
  output.sizes = *sizes;
  size_t next = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d == dim1 || d == dim2) continue;
    const auto at = static_cast<size_t>(d);
    builder.rule.inputs[0].dims[next++] = output.dims[at] = {builder.factor((*sizes)[at])};
  }
  builder.localize("input_sizes");
  return builder.linear();
}

// diag_embed(self, offset, dim1, dim2): the last dim becomes the diagonal of two new ones.
std::optional<BoundRule> diag_embed(const OpCall& call) {
  const Dims& shape = call.tensors[0].shape;
  const auto ndim = static_cast<int64_t>(shape.size()) + 1;
  const int64_t dim1 = wrapped(call.integer("dim1", -2), ndim);
  const int64_t dim2 = wrapped(call.integer("dim2", -1), ndim);
  if (shape.empty() || !in_range(dim1, ndim) || !in_range(dim2, ndim) || dim1 == dim2) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(static_cast<size_t>(ndim));
  size_t next = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    const auto at = static_cast<size_t>(d);
    if (d == dim1 || d == dim2) {
      output.sizes[at] = shape.back() + std::abs(call.integer("offset", 0));
    } else {
      builder.rule.inputs[0].dims[next] = output.dims[at] = {builder.factor(shape[next])};
      ++next;
    }
  }
  return builder.linear();
}

// unfold_backward(grad_in, input_sizes, dim, size, step): what was read several times is added up.
std::optional<BoundRule> unfold_backward(const OpCall& call) {
  const auto sizes = call.list("input_sizes");
  if (!sizes || call.tensors[0].shape.size() != sizes->size() + 1) return std::nullopt;
  const int64_t dim = wrapped(call.integer("dim", 0), static_cast<int64_t>(sizes->size()));
  Builder builder(call);
  BoundOperand& output = builder.output(sizes->size());
  output.sizes = *sizes;
  for (size_t d = 0; d < sizes->size(); ++d) {
    if (static_cast<int64_t>(d) == dim) continue;
    builder.rule.inputs[0].dims[d] = output.dims[d] = {builder.factor((*sizes)[d])};
  }
  builder.localize("input_sizes");
  return builder.linear();
}

// repeat(self, repeats): every rank repeats its own rows, which then stand once in each copy of the dim.
std::optional<BoundRule> repeat(const OpCall& call) {
  const auto repeats = call.list("repeats");
  Builder builder(call);
  const Dims& shape = builder.shape();
  if (!repeats || repeats->size() < shape.size()) return std::nullopt;
  BoundOperand& output = builder.output(repeats->size());
  output.sizes = *repeats;
  for (size_t d = 1; d <= shape.size(); ++d) {
    const size_t in = shape.size() - d;
    const size_t out = repeats->size() - d;
    const int64_t times = (*repeats)[out];
    output.sizes[out] = shape[in] * times;
    if (times < 1 || shape[in] < 1) continue;
    const int16_t rows = builder.factor(shape[in]);
    builder.rule.inputs[0].dims[in] = {rows};
    output.dims[out] = {rows};
    if (times > 1) output.dims[out].insert(output.dims[out].begin(), builder.factor(times, FactorKind::whole));
  }
  return builder.linear();
}

// view(self, dtype): elements of another size change the last dim, of which several then stand for one.
std::optional<BoundRule> view_as_dtype(const OpCall& call) {
  const TensorArgument& self = call.tensors[0];
  if (call.dtype_size == 0 || self.element_size == 0) return std::nullopt;
  const int64_t shrinks = self.element_size / call.dtype_size;
  const int64_t grows = call.dtype_size / self.element_size;
  Builder builder(call);
  BoundOperand& output = builder.output(self.shape.size());
  output.sizes.assign(self.shape.size(), 1);
  for (size_t d = 0; d < self.shape.size(); ++d) {
    const bool last = d + 1 == self.shape.size();
    DimFactors& in = builder.rule.inputs[0].dims[d];
    in = output.dims[d] = {builder.factor(last && grows > 1 ? self.shape[d] / grows : self.shape[d])};
    if (last && grows > 1) in.push_back(builder.factor(grows, FactorKind::whole));
    if (last && shrinks > 1) output.dims[d].push_back(builder.factor(shrinks, FactorKind::whole));
  }
  return builder.done();
}

std::optional<BoundRule> select(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  if (ndim == 0) return std::nullopt;
  return along(call, wrapped(call.integer("dim", 0), ndim), false);
}

// diagonal(self, offset, dim1, dim2): the two dims go, and what they had in common comes last.
std::optional<BoundRule> diagonal(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  const int64_t dim1 = wrapped(call.integer("dim1", 0), ndim);
  const int64_t dim2 = wrapped(call.integer("dim2", 1), ndim);
  if (!in_range(dim1, ndim) || !in_range(dim2, ndim) || dim1 == dim2) return std::nullopt;
  Builder builder(call);
  BoundOperand& output = builder.output(static_cast<size_t>(ndim) - 1);
  size_t next = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d == dim1 || d == dim2) continue;
    const auto at = static_cast<size_t>(d);
    output.dims[next++] = builder.rule.inputs[0].dims[at] = {builder.factor(builder.shape()[at])};
  }
  return builder.linear();
}

// unfold(self, dimension, size, step): windows along a dim, which is whole; their rows come last.
std::optional<BoundRule> unfold(const OpCall& call) {
  const auto ndim = static_cast<int64_t>(call.tensors[0].shape.size());
  const int64_t dim = wrapped(call.integer("dimension", 0), ndim);
  if (!in_range(dim, ndim)) return std::nullopt;
  auto rule = along(call, dim, true);
  rule->outputs[0].dims.emplace_back();
  rule->outputs[0].sizes.push_back(call.integer("size", -1));
  return rule;
}

// as_strided(self, size, stride, storage_offset): any elements of memory, so all of it must be there.
std::optional<BoundRule> as_strided(const OpCall& call) {
  const auto size = call.list("size");
  if (!size) return std::nullopt;
  Builder builder(call);
  builder.output(size->size()).sizes = *size;
  return builder.linear();
}

// cat: dims other than `dim` are shared by all. An empty 1-D tensor takes no part, as in torch.
std::optional<BoundRule> cat(const OpCall& call) {
  size_t ndim = 0;
  for (const TensorArgument& tensor : call.tensors) {
    if (tensor.shape != Dims{0}) ndim = std::max(ndim, tensor.shape.size());
  }
  if (ndim == 0) return std::nullopt;
  const int64_t asked = wrapped(call.integer("dim", 0), static_cast<int64_t>(ndim));
  if (!in_range(asked, static_cast<int64_t>(ndim))) return std::nullopt;
  const auto dim = static_cast<size_t>(asked);
  Builder builder(call);
  BoundOperand& output = builder.output(ndim);
  output.sizes[dim] = 0;
  bool made = false;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const Dims& shape = call.tensors[i].shape;
    if (shape.size() != ndim) {
      if (shape != Dims{0}) return std::nullopt;
      continue;
    }
    output.sizes[dim] += shape[dim];
    for (size_t d = 0; d < ndim; ++d) {
      if (d == dim) continue;
      if (!made) output.dims[d] = {builder.factor(shape[d])};
      if (builder.rule.factors[static_cast<size_t>(output.dims[d].front())].size != shape[d]) return std::nullopt;
      builder.rule.inputs[i].dims[d] = output.dims[d];
    }
    made = true;
  }
  if (call.tensors.size() <= 60) builder.rule.linear = {(uint64_t{1} << call.tensors.size()) - 1};
  return std::move(builder.rule);
}

std::optional<BoundRule> stack(const OpCall& call) {
  if (call.tensors.empty()) return std::nullopt;
  const Dims& shape = call.tensors[0].shape;
  const auto ndim = static_cast<int64_t>(shape.size()) + 1;
  const int64_t asked = wrapped(call.integer("dim", 0), ndim);
  if (!in_range(asked, ndim)) return std::nullopt;
  const auto at = static_cast<size_t>(asked);
  for (const TensorArgument& tensor : call.tensors) {
    if (tensor.shape != shape) return std::nullopt;  // torch says what is wrong
  }
  Builder builder(call);
  BoundOperand& output = builder.output(shape.size() + 1);
  output.sizes[at] = static_cast<int64_t>(call.tensors.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const int16_t factor = builder.factor(shape[d]);
    output.dims[d < at ? d : d + 1] = {factor};
    for (BoundOperand& input : builder.rule.inputs) input.dims[d] = {factor};
  }
  if (call.tensors.size() <= 60) builder.rule.linear = {(uint64_t{1} << call.tensors.size()) - 1};
  return std::move(builder.rule);
}

}  // namespace

std::span<const FunctionRow> view_functions() {
  static constexpr FunctionRow kRows[] = {
      {"permute permute_copy", permute, 1, 1, "dims"},
      {"transpose transpose_copy", transpose, 1, 1, "dim0"},
      {"t t_copy", transpose},
      {"unsqueeze unsqueeze_copy", unsqueeze, 1, 1, "dim"},
      {"squeeze squeeze_copy", squeeze},
      {"expand expand_copy", expand, 1, 1, "size"},
      {"view _unsafe_view view_copy", view, 1, 1, "size"},
      {"reshape", view, 1, 1, "shape"},
      {"slice slice_copy", slice},
      {"slice_backward", slice_backward, 1, 1, "input_sizes"},
      {"select_backward", select_backward, 1, 1, "input_sizes"},
      {"split split_with_sizes split_copy split_with_sizes_copy unsafe_split unsafe_split_with_sizes narrow_copy",
       split},
      {"flip roll", move_rows},
      {"diagonal diagonal_copy", diagonal},
      {"diagonal_backward", diagonal_backward, 1, 1, "input_sizes"},
      {"diag_embed", diag_embed},
      {"unfold unfold_copy", unfold, 1, 1, "dimension"},
      {"unfold_backward", unfold_backward, 1, 1, "input_sizes"},
      {"repeat", repeat, 1, 1, "repeats"},
      {"view.dtype view_copy.dtype", view_as_dtype},
      {"as_strided as_strided_copy", as_strided, 1, 1, "size"},
      {"select select_copy unbind unbind_copy", select},
      {"cat", cat},
      {"stack", stack},
  };
  return kRows;
}

}  // namespace sherd::rules
