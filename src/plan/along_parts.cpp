// Operators that are worked on in parts: scans, candidates, a sort, rows that change places, windows.

#include <fmt/format.h>

#include <algorithm>

#include "plan/along_tools.h"
#include "plan/windows.h"

namespace sherd::plan {
namespace {

constexpr int64_t kPlaceSize = 8;  // bytes of a row's number

// The result where the dim has other rows, or is gone: whole along the axes that cut it.
TensorText without_dim(const TensorText& self, int64_t dim, int64_t rows, bool dim_goes) {
  TensorText result = self;
  result.shape[static_cast<size_t>(dim)] = rows;
  if (dim_goes) result.shape.erase(result.shape.begin() + dim);
  result.placements = plan::without_dim(std::move(result.placements), dim, dim_goes);
  return result;
}

// cumsum(self, dim), cumprod, logcumsumexp.
std::optional<Along> scan(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const auto dim = asked.sharded(given, "dim", given.shape.size());
  if (!dim || !asked.pieces(given, *dim) || (asked.name == "logcumsumexp" && is_complex(given.dtype))) {
    return std::nullopt;
  }
  Answer answer(asked, "each rank scans its own rows and goes on from where the ranks before it end");
  TensorText self = answer.reduced(0);
  if (!has_fraction(self.dtype)) self.dtype = "i64";
  answer.gather(self, *asked.pieces(self, *dim), 1, element_size(self.dtype), "how each rank's rows end");
  return answer.done({self});
}

// cummax(self, dim) and cummin -> values, indices.
std::optional<Along> scan_extremes(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const auto dim = asked.sharded(given, "dim", given.shape.size());
  if (!dim || !asked.pieces(given, *dim)) return std::nullopt;
  Answer answer(asked, "each rank scans its own rows and goes on from where the ranks before it end");
  const TensorText self = answer.reduced(0);
  answer.gather(self, *asked.pieces(self, *dim), 1, element_size(self.dtype) + kPlaceSize,
                "how each rank's rows end, with places");
  return answer.done({self, as(self, "i64")});
}

// argmax(self) of all elements.
std::optional<Along> place_of_all(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  if (!asked.cut_anywhere(given) || numel(given.shape) == 0) return std::nullopt;
  for (const Placement& p : given.placements) {
    if (std::holds_alternative<StridedShard>(p)) return std::nullopt;
  }
  Answer answer(asked, "each rank names its best element and where that is");
  const TensorText self = answer.reduced(0);
  int64_t ranks = 1;
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < asked.mesh.ndim(); ++axis) {
    if (is_replicate(self.placements[static_cast<size_t>(axis)])) continue;
    ranks *= asked.mesh.size(axis);
    axes.push_back(axis);
  }
  answer.exchange("all_gather" + asked.labels(axes) + " of one candidate per rank",
                  (ranks - 1) * (element_size(self.dtype) + kPlaceSize));
  const Dims sizes(asked.flag("keepdim", false) ? self.shape.size() : 0, 1);
  return answer.done({TensorText{"i64", sizes, whole_on(asked.mesh)}});
}

// max.dim(self, dim, keepdim) and min.dim -> values, indices; argmax(self, dim, keepdim) and argmin.
std::optional<Along> extreme(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const bool place_alone = asked.name.starts_with("arg");
  if (!asked.call.list("dim")) return place_alone ? place_of_all(asked) : std::nullopt;
  const auto dim = asked.sharded(given, "dim", given.shape.size());
  if (!dim || !asked.pieces(given, *dim)) return std::nullopt;
  Answer answer(asked, "each rank names the best of its own rows and where that is");
  const TensorText self = answer.reduced(0);
  answer.gather(self, *asked.pieces(self, *dim), 1, element_size(self.dtype) + kPlaceSize, "one candidate per rank");
  const TensorText values = without_dim(self, *dim, 1, !asked.flag("keepdim", false));
  if (place_alone) return answer.done({as(values, "i64")});
  return answer.done({values, as(values, "i64")});
}

// topk(self, k, dim) and kthvalue(self, k, dim, keepdim) -> values, indices.
std::optional<Along> several(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const auto dim = asked.sharded(given, "dim", -1);
  const int64_t k = asked.call.integer("k", 0);
  if (!dim || !asked.pieces(given, *dim)) return std::nullopt;
  const int64_t size = given.shape[static_cast<size_t>(*dim)];
  const auto counts = candidate_counts(*asked.pieces(given, *dim), k);
  if (k < 1 || k > size || !candidates_are_fewer(counts, size, element_size(given.dtype))) return std::nullopt;
  Answer answer(asked, "each rank names the best of its own rows and where they are");
  const TensorText self = answer.reduced(0);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  answer.gather(self, *asked.pieces(self, *dim), most, element_size(self.dtype) + kPlaceSize,
                fmt::format("{} candidate{} per rank", most, most == 1 ? "" : "s"));
  const bool one = asked.name == "kthvalue";
  const TensorText values = without_dim(self, *dim, one ? 1 : k, one && !asked.flag("keepdim", false));
  return answer.done({values, as(values, "i64")});
}

// sort(self, dim) of a long vector -> values, indices.
std::optional<Along> sort(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  if (given.shape.size() != 1 || is_complex(given.dtype) || given.dtype == "bool") return std::nullopt;
  const auto pieces = asked.pieces(given, 0);
  if (!asked.sharded(given, "dim", -1) || !pieces || !is_sorted_by_samples(*pieces, given.shape[0])) {
    return std::nullopt;
  }
  Answer answer(asked, "each rank sorts its own rows; by samples the ranks agree on who gets which values");
  const TensorText self = answer.reduced(0);
  const int64_t size = element_size(self.dtype);
  if (is_real(self.dtype)) {
    answer.whole(answer.run("any", {answer.run("isnan", {self})}), "whether there is NaN");
  }
  answer.gather(self, *pieces, kSortSamples, size, fmt::format("{} samples per rank", kSortSamples));
  answer.gather(self, *pieces, static_cast<int64_t>(pieces->count()), kPlaceSize, "how many go to whom");
  // All values may belong to one rank, or none may have to move.
  int64_t fewest = self.shape[0];
  int64_t most = 0;
  for (const Rows& rows : pieces->rows) {
    fewest = std::min(fewest, rows.size());
    most = std::max(most, rows.size());
  }
  const std::string to = asked.labels(pieces->axes) + " of values with their places, ";
  answer.exchange("all_to_all" + to + "to their ranges", (self.shape[0] - fewest) * (size + kPlaceSize), 0);
  answer.exchange("exchange" + to + "evened out", most * (size + kPlaceSize), 0);
  return answer.done({self, as(self, "i64")});
}

// One dim after the other, rows go to those who want them; a rank's part becomes what it wanted.
struct Move {
  PieceRows from;
  WantedRows wanted;
};
struct MovedTensor {
  TensorText tensor;
  std::vector<Move> moves;
};

int64_t bytes_moved(const Asked& asked, const MovedTensor& moved, const Dims& coordinate) {
  Dims part = local_shape({asked.mesh, moved.tensor.shape, moved.tensor.placements}, coordinate);
  int64_t elements = 0;
  for (const Move& move : moved.moves) {
    const size_t piece = move.from.at(asked.mesh, coordinate);
    int64_t& rows = part[static_cast<size_t>(move.from.dim)];
    rows = 1;
    elements += rows_lacking(move.from, move.wanted, piece) * numel(part);
    rows = count_of(move.wanted[piece]);
  }
  return elements * element_size(moved.tensor.dtype);
}

void add_moves(Answer& answer, const Asked& asked, const std::vector<MovedTensor>& all, const std::string& what) {
  std::vector<int64_t> axes;
  for (const MovedTensor& moved : all) {
    for (const Move& move : moved.moves) {
      for (const int64_t axis : move.from.axes) {
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
      }
    }
  }
  const auto here = [&](const Dims& coordinate) {
    int64_t bytes = 0;
    for (const MovedTensor& moved : all) bytes += bytes_moved(asked, moved, coordinate);
    return bytes;
  };
  answer.exchange("all_to_all" + asked.labels(axes) + " of " + what, asked.most(here));
}

bool in_pieces(const Asked& asked, const TensorText& self, const Dims& dims) {
  return std::all_of(dims.begin(), dims.end(),
                     [&](int64_t d) { return !asked.is_cut(self, d) || asked.pieces(self, d).has_value(); });
}

constexpr const char* kChangeHands = "the rows that change hands";
constexpr const char* kRowsMove = "each rank gets the rows that it shall have, and no others";

// flip(self, dims) and roll(self, shifts, dims).
std::optional<Along> turn(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const auto dims = asked.dims(given, "dims");
  const bool rolls = asked.name == "roll";
  const Dims shifts = asked.call.list("shifts").value_or(Dims());
  const Dims named = asked.call.list("dims").value_or(Dims());
  if (!dims || named.empty() || (rolls && (named.size() != shifts.size() || numel(given.shape) == 0))) {
    return std::nullopt;
  }
  if (!asked.any_cut(given, *dims) || !in_pieces(asked, given, *dims)) return std::nullopt;
  Answer answer(asked, kRowsMove);
  const TensorText self = answer.reduced(0);
  std::vector<Move> moves;
  for (size_t i = 0; i < dims->size(); ++i) {
    const int64_t d = (*dims)[i];
    const int64_t size = self.shape[static_cast<size_t>(d)];
    const auto pieces = asked.pieces(self, d);
    if (!pieces) continue;
    moves.push_back({*pieces, rolls ? rolled(*pieces, size, shifts[i]) : flipped(*pieces, size)});
  }
  add_moves(answer, asked, {{self, moves}}, kChangeHands);
  return answer.done({self});
}

// constant_pad_nd(self, pad): pairs of numbers from the last dim on.
std::optional<Along> pad(const Asked& asked) {
  const TensorText& given = *asked.tensor(0);
  const Dims pads = asked.call.list("pad").value_or(Dims());
  if (pads.size() % 2 != 0 || pads.size() / 2 > given.shape.size()) return std::nullopt;
  TensorText result = given;
  result.placements = without_partials(given.placements);
  Dims padded;
  Dims first(given.shape.size(), 0);
  for (size_t i = 0; 2 * i < pads.size(); ++i) {
    const size_t d = given.shape.size() - 1 - i;
    first[d] = pads[2 * i];
    result.shape[d] += pads[2 * i] + pads[2 * i + 1];
    if (result.shape[d] < 0) return std::nullopt;
    if (pads[2 * i] != 0 || pads[2 * i + 1] != 0) padded.push_back(static_cast<int64_t>(d));
  }
  if (!asked.any_cut(given, padded) || !in_pieces(asked, given, padded)) return std::nullopt;
  for (Placement& p : result.placements) {
    if (std::find(padded.begin(), padded.end(), sharded_dim(p)) != padded.end()) p = Shard(sharded_dim(p));
  }
  Answer answer(asked, kRowsMove);
  const TensorText self = answer.reduced(0);
  std::vector<Move> moves;
  for (const int64_t d : padded) {
    const auto from = asked.pieces(self, d);
    const auto to = asked.pieces(result, d);
    const auto at = static_cast<size_t>(d);
    if (from && to) moves.push_back({*from, set_at(*to, self.shape[at], first[at])});
  }
  add_moves(answer, asked, {{self, moves}}, kChangeHands);
  return answer.done({result});
}

// cat(tensors, dim). The first that is sharded along the dim says how the others are placed.
std::optional<Along> cat(const Asked& asked) {
  const TensorText* guide = nullptr;
  std::optional<int64_t> dim;
  for (size_t i = 0; i < asked.given.operands.size() && guide == nullptr; ++i) {
    if (asked.tensor(i) == nullptr) return std::nullopt;
    dim = asked.sharded(*asked.tensor(i), "dim", 0);
    if (dim) guide = asked.tensor(i);
  }
  if (guide == nullptr) return std::nullopt;
  const auto at = static_cast<size_t>(*dim);
  TensorText result = *guide;
  result.shape[at] = 0;
  std::vector<size_t> taking_part;
  for (size_t i = 0; i < asked.given.operands.size(); ++i) {
    const TensorText* tensor = asked.tensor(i);
    if (tensor == nullptr) return std::nullopt;
    if (tensor->shape.size() == 1 && tensor->shape[0] == 0) continue;  // torch lets these be
    Dims shape = tensor->shape;
    if (shape.size() != guide->shape.size()) return std::nullopt;
    shape[at] = guide->shape[at];
    if (shape != guide->shape) return std::nullopt;
    result.shape[at] += tensor->shape[at];
    if (!has_fraction(result.dtype) && has_fraction(tensor->dtype)) result.dtype = tensor->dtype;
    taking_part.push_back(i);
  }
  // As the guide, but cut evenly along the dim; its Partials are reduced.
  result.placements = without_partials(guide->placements);
  Placements others = result.placements;
  for (size_t axis = 0; axis < others.size(); ++axis) {
    if (sharded_dim(others[axis]) != *dim) continue;
    result.placements[axis] = Shard(*dim);
    others[axis] = Replicate();
  }
  const auto out = asked.pieces(result, *dim);
  if (!out) return std::nullopt;
  Answer answer(asked, kRowsMove);
  std::vector<MovedTensor> moved;
  int64_t offset = 0;
  for (const size_t i : taking_part) {
    const TensorText& tensor = *asked.tensor(i);
    Placements to = others;
    bool same_axes = true;
    for (size_t axis = 0; axis < to.size(); ++axis) {
      same_axes &= (sharded_dim(tensor.placements[axis]) == *dim) == (sharded_dim(result.placements[axis]) == *dim);
    }
    if (same_axes && asked.pieces(tensor, *dim)) {
      for (size_t axis = 0; axis < to.size(); ++axis) {
        if (sharded_dim(tensor.placements[axis]) == *dim) to[axis] = tensor.placements[axis];
      }
    }
    const TensorText there = as(answer.placed(i, to), result.dtype);
    if (const auto pieces = asked.pieces(there, *dim)) {
      moved.push_back({there, {{*pieces, set_at(*out, there.shape[at], offset)}}});
    }
    offset += tensor.shape[at];
  }
  add_moves(answer, asked, moved, kChangeHands);
  return answer.done({result});
}

// Convolutions (input, weight, bias, ...) and pools (self, ...), forward, or backward with the gradient before them.
struct Windowed {
  bool backward = false;
  size_t input = 0;
  std::optional<size_t> weight;
  WindowCall call;
};

std::optional<Windowed> windowed(const Asked& asked) {
  Windowed result;
  result.backward = asked.name.ends_with("_backward");
  result.input = result.backward ? 1 : 0;
  const TensorText* input = asked.tensor(result.input);
  if (input == nullptr || asked.flag("transposed", false)) return std::nullopt;
  result.call.input = input->shape;
  result.call.input_placements = input->placements;
  const auto list = [&](const char* name) { return asked.call.list(name).value_or(Dims()); };
  WindowLists lists{.kernel = list("kernel_size"),
                    .stride = list("stride"),
                    .padding = list("padding"),
                    .dilation = list("dilation"),
                    .ceil_mode = asked.flag("ceil_mode", false)};
  size_t dims = asked.name.find("3d") != std::string::npos ? 3 : 2;
  if (asked.name.starts_with("convolution")) {
    result.weight = result.input + 1;
    const TensorText* weight = asked.tensor(*result.weight);
    if (weight == nullptr || weight->shape.size() != input->shape.size() || input->shape.size() < 3) {
      return std::nullopt;
    }
    result.call.weight = weight->shape;
    result.call.weight_placements = weight->placements;
    result.call.grouped = asked.call.integer("groups", 1) != 1;
    dims = input->shape.size() - 2;
    lists.kernel.assign(weight->shape.begin() + 2, weight->shape.end());
  } else if (lists.stride.empty()) {
    lists.stride = lists.kernel;
  }
  auto windows = windows_of(dims, lists);
  if (!windows) return std::nullopt;
  result.call.windows = std::move(*windows);
  return result;
}

// What goes back to the owners of rows: the most that one of them receives.
int64_t most_given_back(const Asked& asked, const TensorText& input, const std::vector<Move>& moves) {
  const Layout layout{asked.mesh, input.shape, input.placements};
  const auto here = [&](const Dims& coordinate) {
    Dims part = local_shape(layout, coordinate);
    for (const Move& move : moves) {
      part[static_cast<size_t>(move.from.dim)] = count_of(move.wanted[move.from.at(asked.mesh, coordinate)]);
    }
    int64_t elements = 0;
    for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
      const size_t piece = move->from.at(asked.mesh, coordinate);
      int64_t& rows = part[static_cast<size_t>(move->from.dim)];
      rows = 1;
      for (size_t p = 0; p < move->from.count(); ++p) {
        if (p != piece) elements += count_of(move->wanted[p], move->from[piece]) * numel(part);
      }
      rows = move->from[piece].size();
    }
    return elements * element_size(input.dtype);
  };
  return asked.most(here);
}

std::optional<Along> windows(const Asked& asked) {
  const auto found = windowed(asked);
  const auto plan = found ? plan_windows(asked.mesh, found->call) : std::nullopt;
  if (!plan) return std::nullopt;
  if (found->backward && (asked.tensor(0) == nullptr || asked.tensor(0)->shape != plan->output_sizes)) {
    return std::nullopt;
  }
  Answer answer(asked, "each rank gets the rows around its own that its windows reach into");
  const TensorText input = answer.placed(found->input, plan->input);
  std::vector<Move> moves;
  std::vector<int64_t> axes;
  for (const HaloRows& halo : plan->halos) {
    moves.push_back({halo.input, halo.wanted});
    axes.insert(axes.end(), halo.input.axes.begin(), halo.input.axes.end());
  }
  add_moves(answer, asked, {{input, moves}}, "the rows around each rank's own");
  if (found->weight) {
    answer.placed(*found->weight, plan->weight);
    if (!found->backward && asked.tensor(2) != nullptr) answer.placed(2, plan->weight);
  }
  const TensorText output{input.dtype, plan->output_sizes, plan->output};
  const bool with_places = asked.name.starts_with("max_pool");
  if (!found->backward) {
    return with_places ? answer.done({output, as(output, "i64")}) : answer.done({output});
  }
  answer.placed(0, plan->output);
  if (with_places && asked.tensor(2) != nullptr) answer.placed(2, plan->output);
  answer.exchange("all_to_all" + asked.labels(axes) + " of gradients of the rows around each rank's own",
                  most_given_back(asked, input, moves));
  TensorText grad = input;
  for (size_t axis = 0; axis < grad.placements.size(); ++axis) {
    if (plan->weight[axis] == Placement(Shard(0))) grad.placements[axis] = Partial();
  }
  if (!found->weight) return answer.done({grad});
  // What has been cut along batch or space is summed over in the gradients of weight and bias.
  TensorText weight = *asked.tensor(*found->weight);
  weight.placements = plan->weight;
  for (size_t axis = 0; axis < weight.placements.size(); ++axis) {
    if (is_shard(plan->input[axis])) weight.placements[axis] = Partial();
  }
  return answer.done({grad, weight, TensorText{weight.dtype, {weight.shape[0]}, weight.placements}});
}

}  // namespace

std::vector<AlongRow> along_parts() {
  return {
      {"cumsum cumprod logcumsumexp", scan},
      {"cummax cummin", scan_extremes},
      {"max min argmax argmin", extreme},
      {"topk kthvalue", several},
      {"sort", sort},
      {"flip roll", turn},
      {"constant_pad_nd", pad},
      {"cat", cat},
      {"convolution convolution_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward "
       "max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices "
       "max_pool3d_with_indices_backward",
       windows},
  };
}

}  // namespace sherd::plan
