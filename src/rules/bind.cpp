#include "rules/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sherd::rules {
namespace {

// Factors of a bound rule are made as dims are met: star dims by their place from the right, group factors ("d=dim")
// one per dim that the argument names, from the right as well, since torch broadcasts so; the others by name.
class Binder {
 public:
  Binder(const Rule& rule, const OpCall& call, std::string* why) : rule_(rule), call_(call), why_(why) {}

  std::optional<BoundRule> bind() {
    if (!guard_holds() || !count_fits()) return std::nullopt;
    for (size_t i = 0; i < call_.tensors.size(); ++i) {
      if (!bind_input(rule_.inputs[std::min<size_t>(i, rule_.num_inputs - 1U)], call_.tensors[i], i)) {
        return std::nullopt;
      }
    }
    name_group();
    const int outputs = call_.num_outputs > 0 ? call_.num_outputs : rule_.num_outputs;
    for (int i = 0; i < outputs; ++i) {
      const size_t pattern = std::min<size_t>(static_cast<size_t>(i), rule_.num_outputs - 1U);
      if (!bind_output(rule_.outputs[pattern])) return std::nullopt;
    }
    bind_same();
    bind_added();
    drop_broadcast_dims();
    if (!bind_size()) return std::nullopt;
    bound_.shape_only = rule_.shape_only;
    bound_.takes_empty = rule_.takes_empty;
    for (uint8_t i = 0; i < rule_.num_linear; ++i) bound_.linear.push_back(rule_.linear[i].inputs);
    return std::move(bound_);
  }

 private:
  static bool is_star(const OperandPattern& pattern) { return pattern.ndim == 1 && pattern.dims[0] == kStar; }

  // False, with the reason told.
  template <class... Values>
  bool no(fmt::format_string<Values...> text, Values&&... values) const {
    if (why_ != nullptr) *why_ = fmt::format(text, std::forward<Values>(values)...);
    return false;
  }

  bool guard_holds() const {
    const Guard& guard = rule_.guard;
    if (guard.argument.empty()) return true;
    const int64_t value = call_.integer(guard.argument, 0);
    return value == guard.value || no("the rule is for {}={}, given {}", guard.argument, guard.value, value);
  }

  // A rule whose last input is "*" speaks for any number of further ones, and for fewer where it has no other inputs:
  // pointwise operators.
  bool count_fits() const {
    const size_t given = call_.tensors.size();
    const size_t inputs = rule_.num_inputs;
    if (given == inputs) return true;
    const bool fits = given > inputs ? is_star(rule_.inputs[inputs - 1])
                                     : std::all_of(rule_.inputs.begin(), rule_.inputs.begin() + inputs, is_star);
    return fits || no("the rule has {} input{}, given {}", inputs, inputs == 1 ? "" : "s", given);
  }

  int16_t make(int64_t size, FactorKind kind, ReduceOp op, std::string name) {
    bound_.factors.push_back({size, kind, op, std::move(name)});
    return static_cast<int16_t>(bound_.factors.size() - 1);
  }

  // A factor met with another size: 1 stands for a broadcast dim, which has no factor at all.
  int16_t met(int16_t& slot, int64_t size, const FactorRule& rule) {
    if (slot < 0) slot = make(size, rule.kind, rule.op, std::string(rule.name));
    BoundFactor& factor = bound_.factors[static_cast<size_t>(slot)];
    if (factor.size == 1) factor.size = size;
    if (size != factor.size && size != 1) {
      fits_ = no("{} is {} in one operand and {} in another", factor.name.empty() ? "a dim of *" : factor.name,
                 factor.size, size);
    }
    return slot;
  }

  int16_t star_factor(size_t from_right, int64_t size) {
    if (stars_.size() <= from_right) stars_.resize(from_right + 1, -1);
    return met(stars_[from_right], size, {});
  }

  int16_t named_factor(Token token, int64_t size) {
    auto [slot, fresh] = named_.try_emplace(token, int16_t{-1});
    return met(slot->second, size, rule_.factors[static_cast<size_t>(token)]);
  }

  // The dims that a group factor's argument names, for an operand of `ndim` dims, ascending.
  std::optional<Dims> group_dims(const FactorRule& factor, int64_t ndim) const {
    std::optional<Dims> dims = call_.list(factor.argument);
    // any.dims and all.dims: along no dim nothing is reduced, where other reductions take all.
    if (dims && dims->empty() && call_.overload == "dims") {
      no("argument {} names no dim, and nothing is reduced", factor.argument);
      return std::nullopt;
    }
    if (!dims || dims->empty()) {
      Dims all;
      for (int64_t d = 0; d < ndim; ++d) all.push_back(d);
      return all;
    }
    for (int64_t& d : *dims) {
      if (d < 0) d += std::max<int64_t>(ndim, 1);
      if (d < 0 || d >= std::max<int64_t>(ndim, 1)) {
        no("argument {} names a dim that an operand of {} dims does not have", factor.argument, ndim);
        return std::nullopt;
      }
    }
    std::sort(dims->begin(), dims->end());
    if (std::adjacent_find(dims->begin(), dims->end()) != dims->end() && ndim > 0) {
      no("argument {} names a dim twice", factor.argument);
      return std::nullopt;
    }
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

  bool bind_input(const OperandPattern& pattern, const TensorArgument& tensor, size_t input) {
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
      if (ndim >= group_ndim_) {  // an output has the dims of the widest operand
        group_dims_ = *dims;
        group_ndim_ = ndim;
      }
      const auto stars = static_cast<size_t>(ndim) - dims->size();
      size_t star = 0;
      size_t member = 0;
      for (int64_t d = 0; d < ndim; ++d) {
        const int64_t size = tensor.shape[static_cast<size_t>(d)];
        const bool in_group = std::binary_search(dims->begin(), dims->end(), d);
        const int16_t factor = in_group ? group_factor(static_cast<Token>(group), dims->size() - 1 - member++, size)
                                        : star_factor(stars - 1 - star++, size);
        operand.dims[static_cast<size_t>(d)] = {factor};
      }
    } else if (!bind_in_order(pattern, tensor.shape, operand)) {
      return no("operand {} has {} dims, the rule names {}", input, ndim, pattern.ndim);
    }
    bound_.inputs.push_back(std::move(operand));
    return fits_;
  }

  int16_t group_factor(Token token, size_t from_right, int64_t size) {
    if (group_.size() <= from_right) group_.resize(from_right + 1, -1);
    return met(group_[from_right], size, rule_.factors[static_cast<size_t>(token)]);
  }

  // Several factors of a group are told apart by their place from the left, known once all operands were met.
  void name_group() {
    for (size_t k = 0; k < group_.size() && group_.size() > 1; ++k) {
      bound_.factors[static_cast<size_t>(group_[k])].name += std::to_string(group_.size() - 1 - k);
    }
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
      size_t member = group_.size();
      for (size_t d = 0; d < ndim; ++d) {
        const bool in_group = std::binary_search(group_dims_.begin(), group_dims_.end(), static_cast<int64_t>(d));
        if (!in_group) {
          operand.dims[d] = {stars_[--star]};
        } else if (group >= 0) {
          operand.dims[d] = {group_[--member]};
        }
      }
      operand.sizes.assign(ndim, 1);
      bound_.outputs.push_back(std::move(operand));
      return true;
    }
    for (uint8_t d = 0; d < pattern.ndim; ++d) {
      const Token token = pattern.dims[d];
      if (token == kStar) {
        for (size_t i = stars_.size(); i > 0; --i) operand.dims.push_back({stars_[i - 1]});
      } else if (token == kOne) {
        operand.dims.emplace_back();
        operand.sizes.resize(operand.dims.size(), -1);
        operand.sizes.back() = 1;
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

  // "same k": outputs without the factor do not depend on it.
  void bind_same() {
    for (const auto& [token, factor] : named_) {
      if (!rule_.factors[static_cast<size_t>(token)].same) continue;
      for (BoundOperand& output : bound_.outputs) {
        const bool has = std::find(output.dims.begin(), output.dims.end(), DimFactors{factor}) != output.dims.end();
        if (!has) output.same_for.push_back(factor);
      }
    }
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

  // "size input_size": the argument becomes the local size of the first output.
  bool bind_size() {
    if (rule_.size_argument.empty()) return true;
    const auto size = call_.list(rule_.size_argument);
    BoundOperand& output = bound_.outputs.front();
    if (!size || size->size() != output.dims.size()) {
      return no("argument {} is not the size of the output", rule_.size_argument);
    }
    output.sizes = *size;
    bound_.sizes.push_back({call_.find(rule_.size_argument)->argument, 0});
    return true;
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
  std::string* why_;
  BoundRule bound_;
  std::vector<int16_t> stars_;  // from the right
  std::vector<int16_t> group_;  // from the right
  std::map<Token, int16_t> named_;
  Dims group_dims_;
  int64_t group_ndim_ = 0;
  bool fits_ = true;
};

}  // namespace

std::optional<BoundRule> bind(const Rule& rule, const OpCall& call, std::string* why) {
  return Binder(rule, call, why).bind();
}

std::vector<std::string> factor_names(const BoundRule& rule) {
  std::vector<std::string> names;
  const auto taken = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end() ||
           std::any_of(rule.factors.begin(), rule.factors.end(), [&](const auto& f) { return f.name == name; });
  };
  int next = 0;
  for (const BoundFactor& factor : rule.factors) {
    std::string name = factor.name;
    for (; name.empty() || (factor.name.empty() && taken(name)); ++next) {
      name = next < 26 ? std::string(1, static_cast<char>('a' + next)) : "f" + std::to_string(next);
    }
    names.push_back(std::move(name));
  }
  return names;
}

std::string operands_text(const BoundRule& rule) {
  const std::vector<std::string> names = factor_names(rule);
  const auto dim_text = [&](const DimFactors& dim) {
    std::string text;
    for (const int16_t factor : dim) text += (text.empty() ? "" : " ") + names[static_cast<size_t>(factor)];
    return dim.empty() ? "1" : dim.size() == 1 ? text : "(" + text + ")";
  };
  const auto operands = [&](const std::vector<BoundOperand>& list) {
    std::string text;
    for (const BoundOperand& operand : list) {
      if (&operand != &list.front()) text += ", ";
      text += operand.unused ? "-" : operand.added ? "+" : "";
      for (size_t d = 0; d < operand.dims.size() && !operand.unused; ++d) {
        text.append(d > 0 ? " " : "").append(dim_text(operand.dims[d]));
        if (operand.window && operand.window->dim == d) {
          const auto& [dim, start, step, size] = *operand.window;
          text += fmt::format("[{}:{}{}]", start, start + size * step, step == 1 ? "" : fmt::format(":{}", step));
        }
      }
    }
    return text;
  };
  const std::string outputs = operands(rule.outputs);
  return operands(rule.inputs) + (outputs.empty() ? " ->" : " -> " + outputs);
}

Dims output_shape(const BoundRule& rule, size_t output) {
  const BoundOperand& operand = rule.outputs[output];
  Dims shape = operand.sizes;
  shape.resize(operand.dims.size(), -1);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!operand.dims[d].empty()) shape[d] = 1;
    for (const int16_t factor : operand.dims[d]) shape[d] *= rule.factors[static_cast<size_t>(factor)].size;
    if (operand.window && operand.window->dim == d) shape[d] = operand.window->size;
  }
  return shape;
}

std::string to_string(const BoundRule& rule) {
  std::string text = operands_text(rule);
  const std::vector<std::string> names = factor_names(rule);
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    const BoundFactor& factor = rule.factors[i];
    text += (i == 0 ? " | " : ", ") + names[i] + "=" + std::to_string(factor.size);
    if (factor.kind == FactorKind::reduce) text += " reduce(" + sherd::to_string(factor.op) + ")";
    if (factor.kind == FactorKind::whole) text += " whole";
    if (factor.kind == FactorKind::mask) text += " mask";
  }
  for (const uint64_t set : rule.linear) {
    text += ", linear";
    for (size_t i = 0; i < rule.inputs.size(); ++i) {
      if (has_input(set, i)) text += " " + std::to_string(i);
    }
  }
  return text;
}

}  // namespace sherd::rules
