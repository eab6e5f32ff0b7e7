#include "plan/propagate.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

#include "plan/placement_lists.h"
#include "plan/redistribute.h"

namespace sherd::plan {
namespace {

using rules::BoundOperand;
using rules::BoundRule;
using rules::FactorKind;
using rules::has_input;

// How one mesh axis cuts a factor; the dim of the placement is not meant.
using Cut = Placement;

// What one mesh axis does: shard a factor, keep Partials as they are, or neither.
struct AxisChoice {
  int factor = -1;
  Cut cut = Replicate();
  uint64_t partial_inputs = 0;
  ReduceOp op = ReduceOp::sum;
};

int64_t inner_size(const BoundRule& rule, const rules::DimFactors& dim, size_t position) {
  int64_t size = 1;
  for (size_t i = position + 1; i < dim.size(); ++i) size *= rule.factors[static_cast<size_t>(dim[i])].size;
  return size;
}

int64_t outer_size(const BoundRule& rule, const rules::DimFactors& dim, size_t position) {
  int64_t size = 1;
  for (size_t i = 0; i < position; ++i) size *= rule.factors[static_cast<size_t>(dim[i])].size;
  return size;
}

std::vector<int64_t> chunk_cuts(int64_t size, int64_t n) {
  const int64_t step = (size + n - 1) / n;
  std::vector<int64_t> cuts;
  for (int64_t i = 0; i <= n; ++i) cuts.push_back(std::min(size, i * step));
  return cuts;
}

std::vector<int64_t> times(std::vector<int64_t> cuts, int64_t factor) {
  for (int64_t& cut : cuts) cut *= factor;
  return cuts;
}

// What the axes to the left do to a dim that consists of several factors.
struct LeftCuts {
  int64_t outer = 1;    // into how many equal parts they cut the factors outside of the one at hand
  bool nested = false;  // they cut that one, too, or others in another way
};

// The placement of a dim whose factors are `dim` when `factor` is cut by `cut` into n parts, or nothing where it
// cannot be written down.
std::optional<Placement> placement_of(const BoundRule& rule, const rules::DimFactors& dim, int64_t d, int factor,
                                      const Cut& cut, int64_t n, const LeftCuts& left) {
  const auto at = std::find(dim.begin(), dim.end(), static_cast<int16_t>(factor));
  if (at == dim.end()) return std::nullopt;
  if (dim.size() == 1) {
    return std::visit(
        [&](auto placement) -> Placement {
          if constexpr (requires { placement.dim; }) placement.dim = d;
          return placement;
        },
        cut);
  }
  const auto position = static_cast<size_t>(at - dim.begin());
  const int64_t size = rule.factors[static_cast<size_t>(factor)].size;
  const int64_t inner = inner_size(rule, dim, position);
  if (left.nested) return std::nullopt;  // the cuts would have to agree
  const int64_t outer = outer_size(rule, dim, position) / left.outer;
  if (const auto* strided = std::get_if<StridedShard>(&cut)) {
    // Equal pieces of a factor are equal pieces of what it is merged into.
    if (size % (strided->split * n) != 0) return std::nullopt;
    return StridedShard(d, outer * strided->split);
  }
  if (position > 0) {
    if (!std::holds_alternative<Shard>(cut) || size % n != 0) return std::nullopt;
    return StridedShard(d, outer);
  }
  if (std::holds_alternative<Shard>(cut)) {
    if (size % n == 0) return Shard(d);
    return Ragged(d, times(chunk_cuts(size, n), inner));
  }
  if (const auto* ragged = std::get_if<Ragged>(&cut)) return Ragged(d, times(ragged->cuts, inner));
  return std::nullopt;
}

// The inverse: which factor of a dim a placement cuts, and how. `left`: into how many parts axes to the left cut the
// dim.
std::optional<std::pair<int, Cut>> cut_of(const BoundRule& rule, const rules::DimFactors& dim, const Placement& p,
                                          int64_t n, int64_t left) {
  if (dim.empty()) return std::nullopt;
  if (dim.size() == 1) return std::pair<int, Cut>(dim.front(), p);
  const int64_t size = rule.factors[static_cast<size_t>(dim.front())].size;
  const int64_t inner = inner_size(rule, dim, 0);
  const auto from_cuts = [&](const std::vector<int64_t>& cuts) -> std::optional<std::pair<int, Cut>> {
    std::vector<int64_t> outer;
    for (const int64_t cut : cuts) {
      if (cut % inner != 0) return std::nullopt;
      outer.push_back(cut / inner);
    }
    if (outer == chunk_cuts(size, n)) return std::pair<int, Cut>(dim.front(), Shard(0));
    return std::pair<int, Cut>(dim.front(), Ragged(0, outer));
  };
  if (std::holds_alternative<Shard>(p)) return from_cuts(chunk_cuts(size * inner, n));
  if (const auto* ragged = std::get_if<Ragged>(&p)) return from_cuts(ragged->cuts);
  if (const auto* strided = std::get_if<StridedShard>(&p)) {
    const auto outer = [&](size_t i) {
      const int64_t whole = outer_size(rule, dim, i);
      return whole % left == 0 ? whole / left : 0;
    };
    for (size_t i = 1; i < dim.size(); ++i) {
      const int64_t own = rule.factors[static_cast<size_t>(dim[i])].size;
      if (outer(i) == strided->split && own % n == 0) return std::pair<int, Cut>(dim[i], Shard(0));
    }
    for (size_t i = dim.size(); i-- > 0;) {  // the innermost factor that has these pieces
      const int64_t own = rule.factors[static_cast<size_t>(dim[i])].size;
      if (outer(i) == 0 || strided->split % outer(i) != 0) continue;
      const int64_t split = strided->split / outer(i);
      if (split > 1 && own % (split * n) == 0) return std::pair<int, Cut>(dim[i], StridedShard(0, split));
    }
  }
  return std::nullopt;
}

class Propagation {
 public:
  Propagation(const BoundRule& rule, const Mesh& mesh, std::vector<InputTensor> inputs,
              const std::optional<Placements>& keep)
      : rule_(rule), mesh_(mesh), inputs_(std::move(inputs)), keep_(keep) {
    for (const InputTensor& input : inputs_) choice_.inputs.push_back(input.placements);
    const auto ndim = static_cast<size_t>(mesh.ndim());
    choice_.outputs.assign(rule.outputs.size(), Placements(ndim, Replicate()));
  }

  std::optional<Choice> run() {
    for (int64_t axis = 0; axis < mesh_.ndim(); ++axis) {
      if (!choose(axis)) return std::nullopt;
    }
    for (size_t i = 0; i < inputs_.size(); ++i) choice_.bytes += cost(i);
    return std::move(choice_);
  }

 private:
  bool choose(int64_t axis) {
    std::optional<std::tuple<int64_t, int, size_t>> best;
    std::optional<Choice> best_choice;
    AxisChoice best_axis;
    const Choice before = choice_;
    const std::vector<AxisChoice> options = options_for(axis);
    for (size_t i = 0; i < options.size(); ++i) {
      choice_ = before;
      if (!apply(axis, options[i])) continue;
      int64_t bytes = 0;
      int changed = 0;
      for (size_t k = 0; k < inputs_.size(); ++k) {
        bytes += weight(k);
        changed += choice_.inputs[k][static_cast<size_t>(axis)] != inputs_[k].placements[static_cast<size_t>(axis)];
      }
      const auto score = std::tuple(bytes, changed, i);
      if (best && *best <= score) continue;
      best = score;
      best_choice = choice_;
      best_axis = options[i];
    }
    if (!best_choice) return false;
    choice_ = std::move(*best_choice);
    choice_.axes.push_back({best_axis.factor, best_axis.partial_inputs});
    if (best_axis.factor >= 0) pieces_[best_axis.factor] = cut_further(best_axis, axis);
    sharded_.push_back(best_axis.factor);
    return true;
  }

  // What the axis could do: what the inputs do now, what linearity allows, any factor cut plainly, nothing at all.
  std::vector<AxisChoice> options_for(int64_t axis) const {
    std::vector<AxisChoice> options;
    const auto a = static_cast<size_t>(axis);
    const int64_t n = mesh_.size(axis);
    const auto add = [&](AxisChoice option) {
      for (const AxisChoice& other : options) {
        if (other.factor == option.factor && other.cut == option.cut && other.partial_inputs == option.partial_inputs) {
          return;
        }
      }
      options.push_back(std::move(option));
    };
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Placement& p = inputs_[i].placements[a];
      const auto& window = rule_.inputs[i].window;
      const bool own_cuts = window && sharded_dim(p) == static_cast<int64_t>(window->dim);
      if (is_shard(p) && !rule_.inputs[i].unused && !own_cuts) {
        const auto& dim = rule_.inputs[i].dims[static_cast<size_t>(sharded_dim(p))];
        if (auto cut = cut_of(rule_, dim, p, n, cuts_left_of(i, axis)))
          add({cut->first, normal(cut->second), 0, ReduceOp::sum});
      }
      if (const auto* partial = std::get_if<Partial>(&p)) {
        if (partial->op != ReduceOp::sum && partial->op != ReduceOp::avg) continue;
        for (const uint64_t set : rule_.linear) {
          if (has_input(set, i)) add({-1, Replicate(), set, partial->op});
        }
      }
    }
    add({});
    for (size_t f = 0; f < rule_.factors.size(); ++f) {
      if (rule_.factors[f].size >= n && n > 1) add({static_cast<int>(f), Shard(0), 0, ReduceOp::sum});
    }
    return options;
  }

  // Into how many parts the axes to the left cut the dim that `axis` cuts.
  int64_t cuts_left_of(size_t input, int64_t axis) const {
    const Placements& placements = choice_.inputs[input];
    int64_t cuts = 1;
    for (int64_t left = 0; left < axis; ++left) {
      const bool same = sharded_dim(placements[static_cast<size_t>(left)]) ==
                        sharded_dim(inputs_[input].placements[static_cast<size_t>(axis)]);
      if (same) cuts *= mesh_.size(left);
    }
    return cuts;
  }

  static Cut normal(Cut cut) {
    std::visit(
        [](auto& placement) {
          if constexpr (requires { placement.dim; }) placement.dim = 0;
        },
        cut);
    return cut;
  }

  // Sets the axis's placements of every operand; false where the option is not possible.
  bool apply(int64_t axis, const AxisChoice& option) {
    if (option.factor >= 0 && rule_.factors[static_cast<size_t>(option.factor)].kind == FactorKind::whole) return false;
    const auto a = static_cast<size_t>(axis);
    bool partial_output = option.partial_inputs != 0;
    ReduceOp op = option.op;
    for (size_t o = 0; o < rule_.outputs.size(); ++o) {
      Placement& placement = choice_.outputs[o][a];
      placement = Replicate();
      if (option.factor >= 0) {
        const auto dim = dim_of(rule_.outputs[o], option.factor);
        if (dim) {
          const auto cut = place(rule_.outputs[o], *dim, option, axis);
          if (!cut) return false;
          placement = *cut;
        } else {
          const auto& same = rule_.outputs[o].same_for;
          if (std::find(same.begin(), same.end(), static_cast<int16_t>(option.factor)) != same.end()) continue;
          const auto& factor = rule_.factors[static_cast<size_t>(option.factor)];
          if (factor.kind == FactorKind::pass) {
            if (rule_.outputs[o].unused) continue;
            return false;
          }
          if (mesh_.size(axis) == 1) continue;  // the part is the whole
          if (factor.op == ReduceOp::avg && !cuts_evenly(axis, option)) return false;
          op = factor.op;
          partial_output = true;
          placement = Partial(op);
        }
      } else if (partial_output) {
        placement = Partial(op);
      }
    }
    if (keep_ && !choice_.outputs.empty() && choice_.outputs[0][a] != (*keep_)[a]) return false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const BoundOperand& operand = rule_.inputs[i];
      Placement& placement = choice_.inputs[i][a];
      placement = Replicate();
      if (operand.unused) continue;
      if (option.factor >= 0) {
        if (const auto dim = dim_of(operand, option.factor)) {
          const auto cut = place(operand, *dim, option, axis);
          if (!cut) return false;
          placement = *cut;
        } else if (operand.added && partial_output) {
          placement = Partial(op);
        }
      } else if (has_input(option.partial_inputs, i) || (operand.added && partial_output)) {
        placement = Partial(op);
      }
      if (is_partial(placement) && op != ReduceOp::sum && op != ReduceOp::avg) return false;
    }
    if (inputs_.size() < 64 && (option.partial_inputs >> inputs_.size()) != 0) return false;
    if (option.factor >= 0 && rule_.factors[static_cast<size_t>(option.factor)].kind == FactorKind::mask) {
      if (cut_further(option, axis).empty()) return false;  // a rank answers for one range of rows
      choice_.masked = true;
    }
    return fits(axis);
  }

  // The borders between the pieces of a factor when this axis cuts it, too; none where the pieces are not ranges.
  std::vector<int64_t> cut_further(const AxisChoice& option, int64_t axis) const {
    const auto known = pieces_.find(option.factor);
    const std::vector<int64_t> before =
        known != pieces_.end() ? known->second
                               : std::vector<int64_t>{0, rule_.factors[static_cast<size_t>(option.factor)].size};
    if (before.empty() || std::holds_alternative<StridedShard>(option.cut)) return {};
    if (const auto* ragged = std::get_if<Ragged>(&option.cut)) return ragged->cuts;
    std::vector<int64_t> after{0};
    for (size_t i = 0; i + 1 < before.size(); ++i) {
      const auto cuts = chunk_cuts(before[i + 1] - before[i], mesh_.size(axis));
      for (size_t k = 1; k < cuts.size(); ++k) after.push_back(before[i] + cuts[k]);
    }
    return after;
  }

  std::optional<Placement> place_window(const rules::Window& window, const AxisChoice& option, int64_t axis) const {
    std::vector<int64_t> cuts = cut_further(option, axis);
    if (cuts.empty()) return std::nullopt;
    for (int64_t& cut : cuts) cut = window.rows_before(cut);
    const auto dim = static_cast<int64_t>(window.dim);
    if (cuts == chunk_cuts(window.size, mesh_.size(axis))) return Shard(dim);
    return Ragged(dim, std::move(cuts));
  }

  std::optional<Placement> place(const BoundOperand& operand, size_t dim, const AxisChoice& option,
                                 int64_t axis) const {
    if (operand.window && operand.window->dim == dim) return place_window(*operand.window, option, axis);
    LeftCuts cuts;
    const auto& factors = operand.dims[dim];
    const auto place_of = [&](int factor) {
      return std::find(factors.begin(), factors.end(), static_cast<int16_t>(factor));
    };
    for (size_t left = 0; left < sharded_.size(); ++left) {
      if (sharded_[left] < 0 || place_of(sharded_[left]) == factors.end()) continue;
      if (place_of(sharded_[left]) < place_of(option.factor) && has_equal_pieces(sharded_[left])) {
        cuts.outer *= mesh_.size(static_cast<int64_t>(left));
      } else {
        cuts.nested = true;
      }
    }
    return placement_of(rule_, operand.dims[dim], static_cast<int64_t>(dim), option.factor, option.cut,
                        mesh_.size(axis), cuts);
  }

  bool has_equal_pieces(int factor) const {
    const std::vector<int64_t>& borders = pieces_.at(factor);  // none where they are no ranges
    for (size_t i = 2; i < borders.size(); ++i) {
      if (borders[i] - borders[i - 1] != borders[1] - borders[0]) return false;
    }
    return borders.size() > 1;
  }

  // An average of averages is the average only where all parts are of one size.
  bool cuts_evenly(int64_t axis, const AxisChoice& option) const {
    int64_t parts = mesh_.size(axis);
    for (size_t left = 0; left < sharded_.size(); ++left) {
      if (sharded_[left] == option.factor) parts *= mesh_.size(static_cast<int64_t>(left));
    }
    return std::holds_alternative<Shard>(option.cut) &&
           rule_.factors[static_cast<size_t>(option.factor)].size % parts == 0;
  }

  static std::optional<size_t> dim_of(const BoundOperand& operand, int factor) {
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      const auto& dim = operand.dims[d];
      if (std::find(dim.begin(), dim.end(), static_cast<int16_t>(factor)) != dim.end()) return d;
    }
    return std::nullopt;
  }

  // User-chosen cuts count on the axes to their left; where these changed, the cuts mean something else. Axes to the
  // right of `axis` are still to be chosen: what no longer fits there counts as whole until then.
  bool fits(int64_t axis) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (are_placements(mesh_, inputs_[i].shape, choice_.inputs[i])) continue;
      for (auto a = static_cast<size_t>(axis) + 1; a < choice_.inputs[i].size(); ++a) {
        if (std::holds_alternative<Ragged>(choice_.inputs[i][a])) choice_.inputs[i][a] = Replicate();
      }
      if (!are_placements(mesh_, inputs_[i].shape, choice_.inputs[i])) return false;
    }
    return true;
  }

  Redistribution move_of(size_t i) const {
    const InputTensor& input = inputs_[i];
    if (choice_.inputs[i] == input.placements || has_input(rule_.shape_only, i)) return {};
    return plan_redistribution(mesh_, input.shape, input.element_size, input.placements, choice_.inputs[i],
                               {.prefer = Prefer::simple});
  }

  int64_t cost(size_t i) const { return move_of(i).bytes; }

  // What an input's move counts when options are compared. A Partial that is scattered is gathered again sooner or
  // later, unless something else is sharded as it is: reducing it counts the same either way, and making it whole is
  // the simpler of the two.
  int64_t weight(size_t i) const {
    int64_t bytes = 0;
    for (const Step& step : move_of(i).steps) bytes += step.action == Action::all_reduce ? step.bytes / 2 : step.bytes;
    return bytes;
  }

  const BoundRule& rule_;
  const Mesh& mesh_;
  const std::vector<InputTensor> inputs_;
  const std::optional<Placements>& keep_;
  Choice choice_;
  std::vector<int> sharded_;                    // the factor that each axis so far shards, or -1
  std::map<int, std::vector<int64_t>> pieces_;  // of factors sharded so far
};

}  // namespace

std::optional<Choice> propagate(const BoundRule& rule, const Mesh& mesh, const std::vector<InputTensor>& inputs,
                                const std::optional<Placements>& keep) {
  if (rule.shape_only == 0) return Propagation(rule, mesh, inputs, keep).run();
  // Where only the shape matters, a Partial counts as whole, and what would have to be made whole stays as it is.
  std::vector<InputTensor> seen = inputs;
  const auto at_shape_only = [&](const auto& visit) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t axis = 0; axis < inputs[i].placements.size() && rules::has_input(rule.shape_only, i); ++axis) {
        visit(i, axis);
      }
    }
  };
  at_shape_only([&](size_t i, size_t axis) {
    if (is_partial(seen[i].placements[axis])) seen[i].placements[axis] = Replicate();
  });
  auto choice = Propagation(rule, mesh, seen, keep).run();
  if (!choice) return choice;
  at_shape_only([&](size_t i, size_t axis) {
    if (is_replicate(choice->inputs[i][axis])) choice->inputs[i][axis] = inputs[i].placements[axis];
  });
  return choice;
}

}  // namespace sherd::plan
