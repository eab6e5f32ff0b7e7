// Operators that are other operators once their tensors are sharded: each of those takes its own rule.

#include <algorithm>
#include <cmath>

#include "plan/along_tools.h"

namespace sherd::plan {
namespace {

using Arguments = std::vector<std::pair<std::string, ArgumentValue>>;

Arguments over(const Dims& dims, bool keep) { return {{"dim", dims}, {"keepdim", keep}}; }

TensorText number_on(const Mesh& mesh) { return {"f64", {}, whole_on(mesh)}; }

// _softmax(self, dim) and _log_softmax.
std::optional<Along> softmax(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dim = asked.sharded(self, "dim", static_cast<int64_t>(self.shape.size()));
  if (!dim || !is_real(self.dtype) || numel(self.shape) == 0) return std::nullopt;
  Answer answer(asked, "a maximum and a sum over the dim, then each rank its own rows");
  const TensorText x = widened(self);
  const TensorText shifted = answer.run("sub", {x, answer.run("amax", {x}, over({*dim}, true))});
  const TensorText powers = answer.run("exp", {shifted});
  const TensorText total = answer.run("sum", {powers}, over({*dim}, true));
  const bool log = asked.name == "_log_softmax";
  const TensorText result =
      log ? answer.run("sub", {shifted, answer.run("log", {total})}) : answer.run("div", {powers, total});
  return answer.done({as(result, self.dtype)});
}

// _softmax_backward_data(grad_output, output, dim) and _log_softmax_backward_data.
std::optional<Along> softmax_backward(const Asked& asked) {
  if (asked.tensor(1) == nullptr) return std::nullopt;
  const TensorText& output = *asked.tensor(1);
  const auto dim = asked.sharded(output, "dim", static_cast<int64_t>(output.shape.size()));
  if (!dim || !is_real(output.dtype) || numel(output.shape) == 0) return std::nullopt;
  Answer answer(asked, "a sum over the dim, then each rank its own rows");
  const TensorText grad = widened(*asked.tensor(0));
  const TensorText y = widened(output);
  const bool log = asked.name.starts_with("_log");
  const TensorText product = log ? grad : answer.run("mul", {grad, y});
  const TensorText factor = log ? answer.run("exp", {y}) : y;
  const TensorText sum = answer.run("sum", {product}, over({*dim}, true));
  return answer.done({as(answer.run("sub", {product, answer.run("mul", {factor, sum})}), output.dtype)});
}

// linalg_vector_norm(self, ord, dim, keepdim).
std::optional<Along> norm(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dims = asked.dims(self, "dim");
  if (!dims || !asked.any_cut(self, *dims) || !is_real(self.dtype)) return std::nullopt;
  Answer answer(asked, "a sum of powers, or an extreme, over the ranks");
  const double order = asked.real("ord", 2);
  const bool keep = asked.flag("keepdim", false);
  const TensorText x = answer.run("abs", {widened(self)});
  const auto sum = [&](const TensorText& of) { return answer.run("sum", {of}, over(*dims, keep)); };
  TensorText result;
  if (std::isinf(order)) {
    result = answer.run(order > 0 ? "amax" : "amin", {x}, over(*dims, keep));
  } else if (order == 0) {
    result = sum(as(x, "i64"));
  } else if (order == 1) {
    result = sum(x);
  } else {
    const TensorText total = sum(order == 2 ? answer.run("mul", {x, x}) : answer.run("pow", {x}));
    result = answer.run(order == 2 ? "sqrt" : "pow", {total});
  }
  return answer.done({as(result, self.dtype)});
}

// logsumexp(self, dim, keepdim).
std::optional<Along> logsumexp(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dims = asked.dims(self, "dim");
  if (!dims || !asked.any_cut(self, *dims) || !is_real(self.dtype) || numel(self.shape) == 0) return std::nullopt;
  Answer answer(asked, "a maximum and a sum over the ranks");
  const TensorText x = widened(self);
  const TensorText largest = answer.reduced(answer.run("amax", {x}, over(*dims, true)));
  const TensorText powers = answer.run("exp", {answer.run("sub", {x, largest})});
  const bool keep = asked.flag("keepdim", false);
  return answer.done({as(answer.run("log", {answer.run("sum", {powers}, over(*dims, keep))}), self.dtype)});
}

// var, std, var_mean and std_mean (self, dim, correction, keepdim).
std::optional<Along> variance(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dims = asked.dims(self, "dim");
  if (!dims || !asked.any_cut(self, *dims) || !is_real(self.dtype)) return std::nullopt;
  Answer answer(asked, "a mean over the ranks, then a sum of squares");
  const bool keep = asked.flag("keepdim", false);
  const TensorText x = widened(self);
  const TensorText mean = answer.run("mean", {x}, over(*dims, true));
  const TensorText away = answer.run("sub", {x, mean});
  TensorText spread = answer.run("sum", {answer.run("mul", {away, away})}, over(*dims, keep));
  spread = answer.run("div", {spread});
  if (asked.name.starts_with("std")) spread = answer.run("sqrt", {spread});
  spread.dtype = self.dtype;
  if (!asked.name.ends_with("_mean")) return answer.done({spread});
  const TensorText kept = keep ? mean : answer.run("squeeze.dims", {mean}, {{"dim", *dims}});
  return answer.done({spread, as(kept, self.dtype)});
}

// mean(self, dim, keepdim): over shards of different sizes it is no average of averages.
std::optional<Along> mean(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dims = asked.dims(self, "dim");
  if (!dims) return std::nullopt;
  bool uneven = false;
  for (const int64_t d : *dims) {
    int64_t parts = 1;
    for (int64_t axis = 0; axis < asked.mesh.ndim(); ++axis) {
      const Placement& p = self.placements[static_cast<size_t>(axis)];
      if (sharded_dim(p) != d) continue;
      parts *= asked.mesh.size(axis);
      uneven |= !std::holds_alternative<Shard>(p);
    }
    uneven |= self.shape[static_cast<size_t>(d)] % parts != 0;
  }
  if (!uneven) return std::nullopt;
  Answer answer(asked, "shards differ in size: a sum over the ranks, divided by the number of all");
  const TensorText total = answer.run("sum", {self}, over(*dims, asked.flag("keepdim", false)));
  return answer.done({answer.run("div", {total})});
}

// aminmax(self, dim, keepdim) -> min, max.
std::optional<Along> both_extremes(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dims = asked.dims(self, "dim");
  if (!dims || !asked.any_cut(self, *dims) || numel(self.shape) == 0) return std::nullopt;
  Answer answer(asked, "each rank's least and largest, reduced where they are used");
  const Arguments arguments = over(*dims, asked.flag("keepdim", false));
  const TensorText least = answer.run("amin", {self}, arguments);
  return answer.done({least, answer.run("amax", {self}, arguments)});
}

TensorText rows_of(Answer& answer, const TensorText& self, int64_t dim, const Rows& rows) {
  return answer.run("slice", {self}, {{"dim", dim}, {"start", rows.begin}, {"end", rows.end}});
}

// select(self, dim, index): the row is cut out first, so that it alone is moved.
std::optional<Along> select(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dim = asked.sharded(self, "dim", 0);
  if (!dim || self.shape[static_cast<size_t>(*dim)] < 2) return std::nullopt;
  const int64_t size = self.shape[static_cast<size_t>(*dim)];
  const int64_t index = asked.call.integer("index", 0);
  if (index < -size || index >= size) return std::nullopt;
  Answer answer(asked, "the row is cut out first, and it alone is moved");
  const int64_t row = index < 0 ? index + size : index;
  const TensorText cut_out = rows_of(answer, self, *dim, {row, row + 1});
  return answer.done({answer.run("select", {cut_out}, {{"dim", *dim}, {"index", int64_t{0}}})});
}

// split(self, split_size, dim) and split_with_sizes(self, split_sizes, dim): slices, which move nothing.
std::optional<Along> split(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  const auto dim = asked.sharded(self, "dim", 0);
  if (!dim) return std::nullopt;
  const int64_t size = self.shape[static_cast<size_t>(*dim)];
  Dims sizes = asked.call.list("split_sizes").value_or(Dims());
  const int64_t each = asked.call.integer("split_size", 0);
  if (sizes.empty() && each > 0) {
    for (int64_t at = 0; at < size; at += each) sizes.push_back(std::min(each, size - at));
  }
  int64_t total = 0;
  for (const int64_t n : sizes) total += n;
  if (sizes.empty() || total != size) return std::nullopt;
  Answer answer(asked, "slices, which stay where their rows are");
  std::vector<TensorText> parts;
  int64_t begin = 0;
  for (const int64_t n : sizes) {
    parts.push_back(rows_of(answer, self, *dim, {begin, begin + n}));
    begin += n;
  }
  return answer.done(parts);
}

// One number per channel, against a tensor of `ndim` dims.
TensorText per_channel(Answer& answer, const TensorText& numbers, size_t ndim) {
  Dims sizes(ndim, 1);
  sizes[1] = numbers.shape[0];
  return answer.run("view", {numbers}, {{"size", sizes}});
}

// All dims but that of the channels.
Dims sample_dims(const TensorText& input) {
  Dims dims = {0};
  for (size_t d = 2; d < input.shape.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

// (input, weight, bias, running_mean, running_var, training, ...) -> output, mean, 1 / deviation.
std::optional<Along> batch_norm(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const size_t ndim = given.shape.size();
  if (ndim < 2 || numel(given.shape) == 0) return std::nullopt;
  if (!asked.flag("training", asked.name == "_batch_norm_with_update")) return std::nullopt;
  const Dims dims = sample_dims(given);
  const auto is_cut = [&](size_t i) {
    const TensorText* kept = asked.tensor(i);
    return kept != nullptr && kept->placements != whole_on(asked.mesh);
  };
  if (!asked.any_cut(given, dims) && !is_cut(3) && !is_cut(4)) return std::nullopt;
  Answer answer(asked, "sums per channel over the ranks, then each rank its own samples");
  const TensorText x = widened(answer.reduced(0));
  const TensorText mean = answer.run("mean", {x}, over(dims, false));
  const TensorText away = answer.run("sub", {x, per_channel(answer, mean, ndim)});
  TensorText spread = answer.run("sum", {answer.run("mul", {away, away})}, over(dims, false));
  spread = answer.run("div", {spread});
  const TensorText scale = answer.run("rsqrt", {answer.run("add", {spread, number_on(asked.mesh)})});
  TensorText output = answer.run("mul", {away, per_channel(answer, scale, ndim)});
  if (asked.tensor(1) != nullptr) output = answer.run("mul", {output, per_channel(answer, *asked.tensor(1), ndim)});
  if (asked.tensor(2) != nullptr) output = answer.run("add", {output, per_channel(answer, *asked.tensor(2), ndim)});
  if (asked.tensor(3) != nullptr) answer.run("add_", {*asked.tensor(3), as(mean, asked.tensor(3)->dtype)});
  if (asked.tensor(4) != nullptr) answer.run("add_", {*asked.tensor(4), as(spread, asked.tensor(4)->dtype)});
  return answer.done({as(output, given.dtype), answer.reduced(mean), answer.reduced(scale)});
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, ...) -> gradients of input,
// weight and bias.
std::optional<Along> batch_norm_backward(const Asked& asked) {
  if (asked.tensor(1) == nullptr) return std::nullopt;
  const TensorText& input = *asked.tensor(1);
  const size_t ndim = input.shape.size();
  if (ndim < 2 || numel(input.shape) == 0) return std::nullopt;
  const Dims dims = sample_dims(input);
  if (!asked.any_cut(input, dims) && !asked.any_cut(*asked.tensor(0), dims)) return std::nullopt;
  const bool train = asked.flag("train", true);
  const TensorText* kept_mean = asked.tensor(train ? 5 : 3);
  const TensorText* kept_scale = asked.tensor(train ? 6 : 4);
  if (kept_mean == nullptr || kept_scale == nullptr) return std::nullopt;
  Answer answer(asked, "sums per channel over the ranks, then each rank its own samples");
  const TensorText grad = widened(answer.reduced(0));
  const TensorText away =
      answer.run("sub", {widened(answer.reduced(1)), per_channel(answer, widened(*kept_mean), ndim)});
  const TensorText bias = answer.reduced(answer.run("sum", {grad}, over(dims, false)));
  const TensorText along = answer.reduced(answer.run("sum", {answer.run("mul", {grad, away})}, over(dims, false)));
  TensorText result = grad;
  if (train) {
    result = answer.run("sub", {result, per_channel(answer, bias, ndim)});
    result = answer.run("sub", {result, answer.run("mul", {away, per_channel(answer, along, ndim)})});
  }
  result = answer.run("mul", {result, per_channel(answer, widened(*kept_scale), ndim)});
  return answer.done({as(result, input.dtype), answer.run("mul", {along, widened(*kept_scale)}), bias});
}

}  // namespace

std::vector<AlongRow> along_operators() {
  return {
      {"_softmax _log_softmax", softmax},
      {"_softmax_backward_data _log_softmax_backward_data", softmax_backward},
      {"linalg_vector_norm", norm},
      {"logsumexp", logsumexp},
      {"var std var_mean std_mean", variance},
      {"mean", mean},
      {"aminmax", both_extremes},
      {"select", select},
      {"split split_with_sizes unsafe_split unsafe_split_with_sizes", split},
      {"native_batch_norm _native_batch_norm_legit _batch_norm_with_update", batch_norm},
      {"native_batch_norm_backward", batch_norm_backward},
  };
}

}  // namespace sherd::plan
