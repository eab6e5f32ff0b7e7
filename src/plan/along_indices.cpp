// Operators that read or write rows by index, and operators whose result is what was found.

#include <algorithm>

#include "plan/along_tools.h"

namespace sherd::plan {
namespace {

constexpr int64_t kCountSize = 8;

// That all indices name rows, which every rank must know before it writes.
void check_range(Answer& answer, const TensorText& index) {
  if (numel(index.shape) == 0) return;
  answer.whole(answer.run("amin", {index}), "the least index");
  answer.whole(answer.run("amax", {index}), "the largest index");
}

// scatter(self, dim, index, src), index_add(self, dim, index, source) and their like.
std::optional<Along> write_rows(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const TensorText* index = asked.tensor(1);
  const TensorText* source = asked.tensor(2);
  const auto dim = asked.sharded(given, "dim", static_cast<int64_t>(given.shape.size()));
  if (!dim || index == nullptr || !asked.pieces(given, *dim)) return std::nullopt;
  if (numel(given.shape) == 0 || numel(index->shape) == 0) return std::nullopt;
  if (asked.in_place && without_partials(given.placements) != given.placements) return std::nullopt;
  const bool scatters = asked.name.starts_with("scatter");
  if (index->shape.size() != (scatters ? given.shape.size() : 1)) return std::nullopt;
  const bool has_rows = source != nullptr && source->shape.size() == given.shape.size();
  Placements others = without_partials(given.placements);
  for (Placement& p : others) {
    const int64_t d = sharded_dim(p);
    const auto at = static_cast<size_t>(d);
    if (d == *dim) p = Replicate();
    if (d < 0 || d == *dim) continue;
    if (scatters && index->shape[at] != given.shape[at]) return std::nullopt;
    if (has_rows && source->shape[at] != given.shape[at]) return std::nullopt;
  }
  Answer answer(asked, "each rank writes the rows that are its own");
  check_range(answer, *index);
  const TensorText self = answer.reduced(0);
  answer.placed(1, scatters ? others : whole_on(asked.mesh));
  if (source != nullptr) answer.placed(2, has_rows ? others : whole_on(asked.mesh));
  return answer.done({self});
}

// index_put(self, indices, values): the tensors between the first and the last are the indices.
std::optional<Along> put_rows(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const size_t operands = asked.given.operands.size();
  if (operands < 3 || operands - 2 > given.shape.size() || numel(given.shape) == 0) return std::nullopt;
  if (asked.in_place && without_partials(given.placements) != given.placements) return std::nullopt;
  bool any = false;
  for (size_t d = 0; d < given.shape.size(); ++d) {
    const TensorText* index = d + 2 < operands ? asked.tensor(d + 1) : nullptr;
    if (index != nullptr && (index->dtype == "bool" || index->dtype == "u8")) return std::nullopt;
    if (!asked.is_cut(given, static_cast<int64_t>(d))) continue;
    if (index == nullptr || !asked.pieces(given, static_cast<int64_t>(d))) return std::nullopt;
    any = true;
  }
  if (!any) return std::nullopt;
  Answer answer(asked, "each rank writes the rows that are its own");
  for (size_t i = 1; i + 1 < operands; ++i) {
    if (asked.tensor(i) == nullptr) continue;
    if (asked.is_cut(given, static_cast<int64_t>(i) - 1)) check_range(answer, *asked.tensor(i));
    answer.placed(i, whole_on(asked.mesh));
  }
  const TensorText self = answer.reduced(0);
  if (asked.tensor(operands - 1) != nullptr) answer.placed(operands - 1, whole_on(asked.mesh));
  return answer.done({self});
}

// index_select(self, dim, index) and gather(self, dim, index) of few rows.
std::optional<Along> read_rows(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const TensorText* index = asked.tensor(1);
  const auto dim = asked.sharded(given, "dim", static_cast<int64_t>(given.shape.size()));
  if (!dim || index == nullptr || !asked.pieces(given, *dim)) return std::nullopt;
  if (numel(given.shape) == 0 || numel(index->shape) == 0) return std::nullopt;
  const bool gathers = asked.name == "gather";
  if (index->shape.size() != (gathers ? given.shape.size() : 1)) return std::nullopt;
  const auto at = static_cast<size_t>(*dim);
  // The sum of the answers moves twice the result, gathering the tensor once the tensor.
  const int64_t rows = index->shape[gathers ? at : 0];
  if (2 * rows >= given.shape[at]) return std::nullopt;
  Placements others = without_partials(given.placements);
  TensorText result = given;
  result.placements = others;
  for (size_t axis = 0; axis < others.size(); ++axis) {
    const int64_t d = sharded_dim(others[axis]);
    if (d == *dim) {
      others[axis] = Replicate();
      result.placements[axis] = Partial();
    } else if (d >= 0 && gathers && index->shape[static_cast<size_t>(d)] != given.shape[static_cast<size_t>(d)]) {
      return std::nullopt;
    }
  }
  Answer answer(asked, "each rank looks up the rows that are its own; the sum is the result");
  check_range(answer, *index);
  answer.reduced(0);
  answer.placed(1, gathers ? others : whole_on(asked.mesh));
  if (gathers) result.shape = index->shape;
  result.shape[at] = rows;
  return answer.done({result});
}

// Whether the tensor is sharded along its first dim, in pieces, and nowhere else.
bool in_rows(const Asked& asked, const TensorText& tensor) {
  if (!asked.pieces(tensor, 0)) return false;
  return std::none_of(tensor.placements.begin(), tensor.placements.end(),
                      [](const Placement& p) { return is_shard(p) && sharded_dim(p) != 0; });
}

// What each rank found stays there, cut where the finds end: how many they are is for the data to say.
TensorText found_by(const Asked& asked, const PieceRows& pieces, const std::string& dtype, Dims shape) {
  TensorText result{dtype, std::move(shape), whole_on(asked.mesh)};
  for (const int64_t axis : pieces.axes) result.placements[static_cast<size_t>(axis)] = Shard(0);
  return result;
}

void tell_counts(Answer& answer, const Asked& asked, const PieceRows& pieces) {
  answer.exchange("all_gather" + asked.labels(pieces.axes) + " of how many each rank found",
                  static_cast<int64_t>(pieces.count() - 1) * kCountSize);
}

// nonzero(self).
std::optional<Along> nonzero(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  if (given.shape.empty() || !in_rows(asked, given)) return std::nullopt;
  Answer answer(asked, "what each rank finds stays there");
  const TensorText self = answer.reduced(0);
  const PieceRows pieces = *asked.pieces(self, 0);
  tell_counts(answer, asked, pieces);
  return answer.done({found_by(asked, pieces, "i64", {-1, static_cast<int64_t>(self.shape.size())})});
}

// masked_select(self, mask).
std::optional<Along> masked_select(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const TensorText* mask = asked.tensor(1);
  if (given.shape.empty() || mask == nullptr || given.shape != mask->shape || mask->dtype != "bool") {
    return std::nullopt;
  }
  const bool by_self = in_rows(asked, given);
  if (!by_self && !in_rows(asked, *mask)) return std::nullopt;
  Answer answer(asked, "what each rank finds stays there");
  const Placements to = without_partials((by_self ? given : *mask).placements);
  const TensorText self = answer.placed(0, to);
  answer.placed(1, to);
  const PieceRows pieces = *asked.pieces(self, 0);
  tell_counts(answer, asked, pieces);
  return answer.done({found_by(asked, pieces, given.dtype, {-1})});
}

bool has_partial(const TensorText& tensor) {
  return std::any_of(tensor.placements.begin(), tensor.placements.end(), is_partial);
}

// A sum over what the ranks of `self` hold.
TensorText sum_over(const Asked& asked, const TensorText& self, const std::string& dtype, int64_t size) {
  TensorText result{dtype, {size}, whole_on(asked.mesh)};
  for (size_t axis = 0; axis < result.placements.size(); ++axis) {
    if (is_shard(self.placements[axis])) result.placements[axis] = Partial();
  }
  return result;
}

void read_extremes(Answer& answer, const TensorText& self) {
  answer.whole(answer.run("amin", {self}), "the least value");
  answer.whole(answer.run("amax", {self}), "the largest value");
}

// bincount(self, weights, minlength).
std::optional<Along> bincount(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  if (self.shape.size() != 1 || self.shape[0] == 0 || !asked.cut_anywhere(self)) return std::nullopt;
  const TensorText* weights = asked.tensor(1);
  if (has_partial(self) || has_fraction(self.dtype)) return std::nullopt;
  if (weights != nullptr && weights->shape != self.shape) return std::nullopt;
  Answer answer(asked, "each rank counts its own; the sum is the result");
  read_extremes(answer, self);
  if (weights != nullptr) answer.placed(1, self.placements);
  const std::string dtype = weights == nullptr ? "i64" : weights->dtype == "f32" ? "f32" : "f64";
  return answer.done({sum_over(asked, self, dtype, -1)});
}

// histc(self, bins, min, max): without a range the data's own.
std::optional<Along> histc(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  if (numel(self.shape) == 0 || !is_real(self.dtype) || !asked.cut_anywhere(self) || has_partial(self)) {
    return std::nullopt;
  }
  const double low = asked.real("min", 0);
  const double high = asked.real("max", 0);
  const int64_t bins = asked.call.integer("bins", 100);
  if (low > high || bins < 1) return std::nullopt;
  Answer answer(asked, "each rank counts its own; the sum is the result");
  if (low == high) read_extremes(answer, self);
  return answer.done({sum_over(asked, self, self.dtype, bins)});
}

// _unique2(self, sorted, return_inverse, return_counts) -> values, inverse, counts.
std::optional<Along> unique(const Asked& asked) {
  const TensorText& self = *asked.tensor(0);
  if (numel(self.shape) == 0 || has_fraction(self.dtype) || !asked.cut_anywhere(self) || has_partial(self)) {
    return std::nullopt;
  }
  Answer answer(asked, "ranks tell each other what they found, axis by axis");
  const Layout layout{asked.mesh, self.shape, self.placements};
  // A rank finds one value at the least, and as many as it has at the most; after each axis, as many as these had.
  int64_t most = asked.most([&](const Dims& coordinate) { return numel(local_shape(layout, coordinate)); });
  for (int64_t axis = 0; axis < asked.mesh.ndim(); ++axis) {
    const int64_t others = asked.mesh.size(axis) - 1;
    if (!is_shard(self.placements[static_cast<size_t>(axis)]) || others == 0) continue;
    const std::string label = "all_gather" + asked.labels({axis});
    const int64_t each = others * (element_size(self.dtype) + kCountSize);
    answer.exchange(label + " of how many each rank found", others * kCountSize);
    answer.exchange(label + " of values with their counts", most * each, each);
    most = std::min(most * (others + 1), numel(self.shape));
  }
  const Placements whole = whole_on(asked.mesh);
  const bool inverse = asked.flag("return_inverse", false);
  return answer.done({TensorText{self.dtype, {-1}, whole}, inverse ? as(self, "i64") : TensorText{"i64", {0}, whole},
                      TensorText{"i64", {asked.flag("return_counts", false) ? -1 : 0}, whole}});
}

}  // namespace

std::vector<AlongRow> along_indices() {
  return {
      {"scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce", write_rows, true},
      {"index_put _index_put_impl", put_rows, true},
      {"index_select gather", read_rows},
      {"nonzero", nonzero},
      {"masked_select", masked_select},
      {"bincount", bincount},
      {"histc", histc},
      {"_unique2", unique},
  };
}

}  // namespace sherd::plan
