#include "rules/bind.h"

#include <algorithm>
#include <map>

namespace sherd::rules {
namespace {

// Factors of a bound rule are made as dims are met: star dims by their place from the right, group factors ("d=dim")
// one per dim that the argument names, the others by name.
class Binder {
 public:
  Binder(const Rule& rule, const OpCall& call) : rule_(rule), call_(call) {}

  std::optional<BoundRule> bind() {
    if (!guard_holds()) return std::nullopt;
    const size_t tensors = call_.tensors.size();
    // A rule whose last input is "*" speaks for any number of further ones: pointwise operators.
    const bool extends = rule_.num_inputs > 0 && is_star(rule_.inputs[rule_.num_inputs - 1U]);
    if (tensors > rule_.num_inputs && !extends) return std::nullopt;
    for (size_t i = 0; i < tensors; ++i) {
      if (!bind_input(rule_.inputs[std::min<size_t>(i, rule_.num_inputs - 1U)], call_.tensors[i])) return std::nullopt;
    }
    for (int i = 0; i < call_.num_outputs; ++i) {
      const size_t pattern = std::min<size_t>(static_cast<size_t>(i), rule_.num_outputs - 1U);
      if (!bind_output(rule_.outputs[pattern])) return std::nullopt;
    }
    bind_added();
    drop_broadcast_dims();
    bound_.shape_only = rule_.shape_only;
    for (uint8_t i = 0; i < rule_.num_linear; ++i) bound_.linear.push_back(rule_.linear[i].inputs);
    return std::move(bound_);
  }

 private:
  static bool is_star(const OperandPattern& pattern) { return pattern.ndim == 1 && pattern.dims[0] == kStar; }

  bool guard_holds() const {
    const Guard& guard = rule_.guard;
    return guard.argument.empty() || call_.integer(guard.argument, 0) == guard.value;
  }

  int16_t make(int64_t size, FactorKind kind, ReduceOp op) {
    bound_.factors.push_back({size, kind, op});
    return static_cast<int16_t>(bound_.factors.size() - 1);
  }

  // A factor met with another size: 1 stands for a broadcast dim, which has no factor at all.
  int16_t met(int16_t& slot, int64_t size, FactorKind kind, ReduceOp op) {
    if (slot < 0) slot = make(size, kind, op);
    BoundFactor& factor = bound_.factors[static_cast<size_t>(slot)];
    if (factor.size == 1) factor.size = size;
    if (size != factor.size && size != 1) fits_ = false;
    return slot;
  }

  int16_t star_factor(size_t from_right, int64_t size) {
    if (stars_.size() <= from_right) stars_.resize(from_right + 1, -1);
    return met(stars_[from_right], size, FactorKind::pass, ReduceOp::sum);
  }

  int16_t named_factor(Token token, int64_t size) {
    const FactorRule& rule = rule_.factors[static_cast<size_t>(token)];
    auto [slot, fresh] = named_.try_emplace(token, int16_t{-1});
    return met(slot->second, size, rule.kind, rule.op);
  }

  // The dims that a group factor's argument names, for an operand of `ndim` dims, ascending.
  std::optional<Dims> group_dims(const FactorRule& factor, int64_t ndim) const {
    std::optional<Dims> dims = call_.list(factor.argument);
    if (!dims || dims->empty()) {
      Dims all;
      for (int64_t d = 0; d < ndim; ++d) all.push_back(d);
      return all;
    }
    for (int64_t& d : *dims) {
      if (d < 0) d += std::max<int64_t>(ndim, 1);
      if (d < 0 || d >= std::max<int64_t>(ndim, 1)) return std::nullopt;
    }
    std::sort(dims->begin(), dims->end());
    if (ndim == 0) dims->clear();
    return dims;
  }

  int group_token(const OperandPattern& pattern) const {
    for (uint8_t d = 0; d < pattern.ndim; ++d) {
      const Token token = pattern.dims[d];
      if (token >= 0 && !rule_.factors[static_cast<size_t>(token)].argument.empty()) return token;
    }
    return -1;
  }

  bool bind_input(const OperandPattern& pattern, const TensorArgument& tensor) {
    BoundOperand operand;
    operand.added = pattern.added;
    operand.unused = pattern.unused || !tensor.present;
    operand.dims.resize(tensor.shape.size());
    if (operand.unused || pattern.added) {
      bound_.inputs.push_back(std::move(operand));
      return true;
    }
    const auto ndim = static_cast<int64_t>(tensor.shape.size());
    const int group = group_token(pattern);
    if (group >= 0) {
      const auto dims = group_dims(rule_.factors[static_cast<size_t>(group)], ndim);
      if (!dims) return false;
      group_dims_ = *dims;
      group_ndim_ = ndim;
      const auto stars = static_cast<size_t>(ndim) - dims->size();
      size_t star = 0;
      size_t member = 0;
      for (int64_t d = 0; d < ndim; ++d) {
        const int64_t size = tensor.shape[static_cast<size_t>(d)];
        const bool in_group = std::binary_search(dims->begin(), dims->end(), d);
        const int16_t factor =
            in_group ? group_factor(static_cast<Token>(group), member++, size) : star_factor(stars - 1 - star++, size);
        operand.dims[static_cast<size_t>(d)] = {factor};
      }
    } else if (!bind_in_order(pattern, tensor.shape, operand)) {
      return false;
    }
    bound_.inputs.push_back(std::move(operand));
    return fits_;
  }

  int16_t group_factor(Token token, size_t member, int64_t size) {
    const FactorRule& rule = rule_.factors[static_cast<size_t>(token)];
    if (group_.size() <= member) group_.resize(member + 1, -1);
    return met(group_[member], size, rule.kind, rule.op);
  }

  // Tokens before the star name leading dims, those after it trailing ones.
  bool bind_in_order(const OperandPattern& pattern, const Dims& shape, BoundOperand& operand) {
    size_t star_at = pattern.ndim;
    for (uint8_t d = 0; d < pattern.ndim; ++d) {
      if (pattern.dims[d] == kStar) star_at = d;
    }
    const bool has_star = star_at != pattern.ndim;
    const size_t fixed = pattern.ndim - (has_star ? 1U : 0U);
    if (shape.size() < fixed || (!has_star && shape.size() != fixed)) return false;
    const size_t stars = shape.size() - fixed;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (has_star && d >= star_at && d < star_at + stars) {
        operand.dims[d] = {star_factor(stars - 1 - (d - star_at), shape[d])};
        continue;
      }
      const Token token = pattern.dims[d < star_at ? d : d - stars + 1];
      if (token >= 0) operand.dims[d] = {named_factor(token, shape[d])};
    }
    return true;
  }

  bool bind_output(const OperandPattern& pattern) {
    BoundOperand operand;
    const bool keep_dims = !group_.empty() && group_token(pattern) < 0 && call_.integer("keepdim", 0) != 0;
    const int group = group_token(pattern);
    if (group >= 0 || keep_dims) {
      const auto ndim = static_cast<size_t>(group_ndim_);
      operand.dims.resize(ndim);
      size_t star = stars_.size();
      size_t member = 0;
      for (size_t d = 0; d < ndim; ++d) {
        const bool in_group = std::binary_search(group_dims_.begin(), group_dims_.end(), static_cast<int64_t>(d));
        if (!in_group) {
          operand.dims[d] = {stars_[--star]};
        } else if (group >= 0) {
          operand.dims[d] = {group_[member++]};
        }
      }
      bound_.outputs.push_back(std::move(operand));
      return true;
    }
    for (uint8_t d = 0; d < pattern.ndim; ++d) {
      const Token token = pattern.dims[d];
      if (token == kStar) {
        for (size_t i = stars_.size(); i > 0; --i) operand.dims.push_back({stars_[i - 1]});
      } else if (token == kOne) {
        operand.dims.emplace_back();
      } else {
        const auto known = named_.find(token);
        if (known != named_.end()) {
          operand.dims.push_back({known->second});
        } else {
          operand.dims.emplace_back();  // of outputs alone, so whole
        }
      }
    }
    bound_.outputs.push_back(std::move(operand));
    return true;
  }

  // "+": aligned with the first output from the right.
  void bind_added() {
    for (size_t i = 0; i < bound_.inputs.size(); ++i) {
      BoundOperand& operand = bound_.inputs[i];
      if (!operand.added || operand.unused) continue;
      const auto& output = bound_.outputs.front().dims;
      const size_t ndim = std::min(operand.dims.size(), output.size());
      for (size_t d = 1; d <= ndim; ++d) {
        operand.dims[operand.dims.size() - d] = output[output.size() - d];
      }
    }
  }

  // An input's dim of size 1 that stands for a larger factor is broadcast: it has no factor.
  void drop_broadcast_dims() {
    for (size_t i = 0; i < bound_.inputs.size(); ++i) {
      for (size_t d = 0; d < bound_.inputs[i].dims.size(); ++d) {
        DimFactors& dim = bound_.inputs[i].dims[d];
        if (dim.empty()) continue;
        const int64_t size = call_.tensors[i].shape[d];
        if (size == 1 && bound_.factors[static_cast<size_t>(dim.front())].size != 1) dim.clear();
      }
    }
  }

  const Rule& rule_;
  const OpCall& call_;
  BoundRule bound_;
  std::vector<int16_t> stars_;  // from the right
  std::vector<int16_t> group_;
  std::map<Token, int16_t> named_;
  Dims group_dims_;
  int64_t group_ndim_ = 0;
  bool fits_ = true;
};

}  // namespace

std::optional<BoundRule> bind(const Rule& rule, const OpCall& call) { return Binder(rule, call).bind(); }

std::string to_string(const BoundRule& rule) {
  const auto name = [](int16_t factor) {
    return factor < 26 ? std::string(1, static_cast<char>('a' + factor)) : "f" + std::to_string(factor);
  };
  const auto operands = [&](const std::vector<BoundOperand>& list) {
    std::string text;
    for (const BoundOperand& operand : list) {
      if (!text.empty()) text += ", ";
      if (operand.added) text += "+";
      text += operand.unused ? "-" : "[";
      for (size_t d = 0; d < operand.dims.size() && !operand.unused; ++d) {
        if (d > 0) text += " ";
        if (operand.dims[d].empty()) text += "1";
        for (const int16_t factor : operand.dims[d]) text += name(factor);
        if (operand.window && operand.window->dim == d) {
          const auto& [dim, start, step, size] = *operand.window;
          text += "[" + std::to_string(start) + ":" + std::to_string(start + size * step);
          text += (step == 1 ? "" : ":" + std::to_string(step)) + "]";
        }
      }
      if (!operand.unused) text += "]";
    }
    return text;
  };
  std::string text = operands(rule.inputs) + " -> " + operands(rule.outputs);
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    const BoundFactor& factor = rule.factors[i];
    text += (i == 0 ? " | " : ", ") + name(static_cast<int16_t>(i)) + "=" + std::to_string(factor.size);
    if (factor.kind == FactorKind::reduce) text += " reduce(" + sherd::to_string(factor.op) + ")";
    if (factor.kind == FactorKind::whole) text += " whole";
    if (factor.kind == FactorKind::mask) text += " mask";
  }
  for (const uint64_t set : rule.linear) {
    text += ", linear";
    for (size_t i = 0; i < rule.inputs.size(); ++i) {
      if ((set >> i & 1U) != 0) text += " " + std::to_string(i);
    }
  }
  return text;
}

}  // namespace sherd::rules
