#include "sherd/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "plan/along.h"
#include "plan/propagate.h"
#include "plan/redistribute.h"
#include "rules/bind.h"
#include "rules/registry.h"
#include "sherd/error.h"

namespace sherd {
namespace {

using plan::has_fraction;
using plan::InputTensor;
using rules::BoundRule;
using rules::FactorKind;
using Source = Explanation::Source;

constexpr std::string_view kOperation = "explain";

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A guess that holds for most: the first operand with a fraction decides.
std::string output_dtype(const rules::OpCall& call, const OperatorCall& given, size_t output) {
  const std::string base = rules::base_name(call.op);
  const std::string_view name = base.starts_with("aten::") ? std::string_view(base).substr(6) : std::string_view(base);
  if (is_one_of(name, {"all", "any", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isclose",
                       "logical_and", "logical_or", "logical_xor", "logical_not"})) {
    return "bool";
  }
  const bool indices = is_one_of(name, {"argmax", "argmin", "argsort"}) ||
                       (output == 1 && is_one_of(name, {"max", "min", "median", "nanmedian", "mode", "kthvalue", "sort",
                                                        "topk", "cummax", "cummin", "max_pool2d_with_indices"}));
  if (indices) return "i64";
  const std::string* dtype = nullptr;
  for (const auto& operand : given.operands) {
    if (!operand || (dtype != nullptr && has_fraction(*dtype))) continue;
    if (dtype == nullptr || has_fraction(operand->dtype)) dtype = &operand->dtype;
  }
  if (name == "_fft_r2c" && dtype != nullptr) return *dtype == "f64" ? "c128" : "c64";
  if (name == "_fft_c2r" && dtype != nullptr) return *dtype == "c128" ? "f64" : "f32";
  return dtype == nullptr ? "f32" : *dtype;
}

// What an argument says of an output's size where the rule does not.
Dims output_shape(const rules::OpCall& call, const BoundRule& rule, size_t output) {
  Dims shape = rules::output_shape(rule, output);
  const int64_t dim = call.integer("dim", -1);
  const auto at = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(shape.size()) : dim);
  if (rules::base_name(call.op) == "aten::topk" && at < shape.size()) shape[at] = call.integer("k", shape[at]);
  return shape;
}

// The overload that is meant where none is named: the one that an argument has the name of (max with "dim"), the one
// without a name, the one for tensors, or the first that the tables have.
std::string overload_of(const OperatorCall& given, const std::string& name) {
  std::vector<std::string> known;
  for (const std::string& op : rules::operators_with_rules()) {
    if (op == name) known.emplace_back();
    if (op.starts_with(name + ".")) known.push_back(op.substr(name.size() + 1));
  }
  const auto has = [&](const std::string& overload) {
    return std::find(known.begin(), known.end(), overload) != known.end();
  };
  for (const auto& [argument, value] : given.arguments) {
    if (has(argument)) return argument;
  }
  if (known.empty() || has("") || has("default")) return "";
  return has("Tensor") ? "Tensor" : known.front();
}

// Operators that torch makes of another one before sherd sees them, by the name that people know.
std::string inner_name(const std::string& name) {
  struct Inner {
    std::string_view known;
    std::string_view inner;
  };
  static constexpr Inner kInner[] = {
      {"softmax", "_softmax"},
      {"log_softmax", "_log_softmax"},
      {"conv1d", "convolution"},
      {"conv2d", "convolution"},
      {"conv3d", "convolution"},
      {"max_pool2d", "max_pool2d_with_indices"},
      {"max_pool3d", "max_pool3d_with_indices"},
      {"batch_norm", "native_batch_norm"},
      {"embedding_bag", "_embedding_bag"},
      {"unique", "_unique2"},
  };
  for (const Inner& row : kInner) {
    if (row.known == name) return std::string(row.inner);
  }
  return name;
}

rules::OpCall to_call(const OperatorCall& given) {
  rules::OpCall call;
  const size_t colon = given.op.find("::");
  const size_t dot = given.op.find('.', colon == std::string::npos ? 0 : colon);
  const std::string name = inner_name(given.op.substr(0, dot));
  call.op = colon == std::string::npos ? "aten::" + name : name;
  if (dot != std::string::npos) {
    call.overload = given.op.substr(dot + 1);
  } else if (call.op.starts_with("aten::")) {
    call.overload = overload_of(given, rules::base_name(call.op).substr(6));
  }
  call.num_outputs = given.outputs;
  for (const auto& operand : given.operands) {
    const auto index = static_cast<int>(call.tensors.size());
    call.tensors.push_back({operand ? operand->shape : Dims(), {}, operand.has_value(), index});
  }
  for (const auto& [argument, value] : given.arguments) {
    call.plain.push_back({argument, static_cast<int>(call.tensors.size() + call.plain.size()), value});
  }
  return call;
}

std::string value_text(const ArgumentValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* list = std::get_if<Dims>(&value)) return to_string(*list);
  if (const auto* text = std::get_if<std::string>(&value)) return "\"" + *text + "\"";
  return "none";
}

std::string without_double_spaces(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ' || (!result.empty() && result.back() != ' ')) result += c;
  }
  while (result.ends_with(' ')) result.pop_back();
  return result;
}

class Explainer {
 public:
  Explainer(const OperatorCall& given, const Mesh& mesh) : given_(given), mesh_(mesh), call_(to_call(given)) {
    result_.mesh = mesh;
    const bool aten = call_.op.starts_with("aten::");
    result_.op = call_.op.substr(aten ? 6 : 0) + (call_.overload.empty() ? "" : "." + call_.overload);
    for (const auto& operand : given.operands) {
      InputTensor input{{}, 4, Placements(static_cast<size_t>(mesh.ndim()), Replicate())};
      if (operand) input = {operand->shape, plan::element_size(operand->dtype), operand->placements};
      inputs_.push_back(std::move(input));
    }
    // t_() and its like change a tensor's shape, not its data.
    const std::string base = rules::base_name(call_.op);
    const bool view = is_one_of(base, {"aten::t", "aten::transpose", "aten::squeeze", "aten::unsqueeze"});
    if ((given.in_place || base != call_.op) && !view) written_ = 0;
  }

  Explanation run() {
    if (const auto rule = find_rule()) {
      follow(*rule);
    } else {
      run_whole();
    }
    count();
    if (!given_.rule.empty()) return std::move(result_);
    if (auto along = plan::along_sharded_dim(given_, call_, mesh_)) answer(std::move(*along));
    return std::move(result_);
  }

 private:
  void count() {
    result_.bytes = 0;
    for (const Explanation::Operand& operand : result_.operands) {
      for (const auto* steps : {&operand.steps, &operand.back}) {
        for (const Explanation::Step& step : *steps) result_.bytes += step.bytes;
      }
    }
    result_.least = result_.bytes;
    for (const Explanation::Exchange& exchange : result_.exchanges) {
      result_.bytes += exchange.bytes;
      result_.least += exchange.least;
    }
  }

  void answer(plan::Along along) {
    result_.bytes_by_rule = result_.bytes;
    result_.along = std::move(along.how);
    result_.bound.clear();
    result_.factors.clear();
    result_.axes.clear();
    result_.operands = std::move(along.operands);
    result_.exchanges = std::move(along.exchanges);
    result_.outputs = std::move(along.outputs);
    count();
  }

  std::optional<BoundRule> find_rule() {
    std::vector<rules::Refusal> refusals;
    if (!given_.rule.empty()) {
      const rules::Rule rule = rules::checked_rule(kOperation, result_.op, given_.rule);
      std::string why;
      auto bound = rules::bind(rule, call_, &why);
      if (!bound) refuse({{given_.rule, why}});
      result_.source = Source::yours;
      result_.rule = without_double_spaces(given_.rule);
      return bound;
    }
    auto found = rules::look_up(call_, &refusals);
    if (!found) {
      if (!refusals.empty()) refuse(refusals);
      return std::nullopt;
    }
    result_.source = found->yours ? Source::yours : found->text.empty() ? Source::computed : Source::table;
    result_.rule = without_double_spaces(found->text);
    return std::move(found->rule);
  }

  [[noreturn]] void refuse(const std::vector<rules::Refusal>& refusals) const {
    std::string operands;
    for (const auto& operand : given_.operands) {
      operands += (operands.empty() ? "" : ", ") + (operand ? to_string(*operand, mesh_) : "-");
    }
    ErrorText text(kOperation, "the operands do not fit the operator's rule");
    text.fact("operator", result_.op).fact("operands", operands.empty() ? "none" : operands);
    for (const auto& [name, value] : given_.arguments) text.fact("argument " + name, value_text(value));
    for (const rules::Refusal& refusal : refusals) {
      text.fact("rule", without_double_spaces(refusal.text)).fact("why not", refusal.why);
    }
    throw std::invalid_argument(text.help("mend the operands, or add arguments: --arg dim=1, --arg size=[4,8]"));
  }

  // A factor may be one that outputs without it are reduced over, and all outputs may have it.
  static bool is_reduced(const BoundRule& rule, size_t factor) {
    if (rule.factors[factor].kind != FactorKind::reduce) return false;
    return std::any_of(rule.outputs.begin(), rule.outputs.end(), [&](const rules::BoundOperand& output) {
      return std::none_of(output.dims.begin(), output.dims.end(), [&](const rules::DimFactors& dim) {
        return std::find(dim.begin(), dim.end(), static_cast<int16_t>(factor)) != dim.end();
      });
    });
  }

  void follow(const BoundRule& rule) {
    const auto names = rules::factor_names(rule);
    result_.bound = rules::operands_text(rule);
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      const rules::BoundFactor& factor = rule.factors[f];
      const char* kind = factor.kind == FactorKind::whole ? "whole" : factor.kind == FactorKind::mask ? "mask" : "";
      result_.factors.push_back({names[f], factor.size, kind});
      if (is_reduced(rule, f)) result_.factors.back().kind = "reduce(" + to_string(factor.op) + ")";
    }
    std::optional<Placements> keep;
    if (written_ && *written_ < inputs_.size()) keep = inputs_[*written_].placements;
    auto choice = keep ? plan::propagate(rule, mesh_, inputs_, keep) : std::nullopt;
    if (!choice) choice = plan::propagate(rule, mesh_, inputs_);
    for (size_t axis = 0; axis < choice->axes.size(); ++axis) add_axis(rule, *choice, names, axis);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      add_operand(i, choice->inputs[i], rules::has_input(rule.shape_only, i));
    }
    for (size_t o = 0; o < rule.outputs.size(); ++o) {
      result_.outputs.push_back({output_dtype(call_, given_, o), output_shape(call_, rule, o), choice->outputs[o]});
    }
    if (keep && !result_.outputs.empty() && result_.outputs[0].placements != *keep) write_back(*keep);
  }

  // As the engine does: the result of an operator that could not run in the operand's placements goes back there.
  void write_back(const Placements& keep) {
    const InputTensor& self = inputs_[*written_];
    Placements& now = result_.outputs[0].placements;
    const TensorText written{given_.operands[*written_]->dtype, self.shape, now};
    result_.operands[*written_].back = plan::steps_between(mesh_, written, keep);
    now = keep;
  }

  void add_axis(const BoundRule& rule, const plan::Choice& choice, const std::vector<std::string>& names, size_t axis) {
    const plan::AxisUse& use = choice.axes[axis];
    Explanation::Axis result;
    if (use.factor >= 0) {
      result.factor = names[static_cast<size_t>(use.factor)];
      result.looks_up = rule.factors[static_cast<size_t>(use.factor)].kind == FactorKind::mask;
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (rules::has_input(use.partial_inputs, i)) result.partial_operands.push_back(i);
    }
    for (const Placements& output : choice.outputs) {
      if (const auto* partial = std::get_if<Partial>(&output[axis])) result.output_is_part = partial->op;
    }
    result_.axes.push_back(std::move(result));
  }

  void add_operand(size_t i, const Placements& to, bool shape_only) {
    const InputTensor& input = inputs_[i];
    Explanation::Operand operand{given_.operands[i], to, {}, {}};
    if (operand.tensor && !shape_only && to != input.placements) {
      operand.steps = plan::steps_between(mesh_, *operand.tensor, to);
    }
    result_.operands.push_back(std::move(operand));
  }

  void run_whole() {
    const Placements whole(static_cast<size_t>(mesh_.ndim()), Replicate());
    result_.axes.resize(whole.size());
    for (size_t i = 0; i < inputs_.size(); ++i) add_operand(i, whole, false);
  }

  const OperatorCall& given_;
  const Mesh& mesh_;
  const rules::OpCall call_;
  std::vector<InputTensor> inputs_;
  std::optional<size_t> written_;
  Explanation result_;
};

// Lines of a label and what it labels, the labels in one column.
class Lines {
 public:
  void add(std::string label, std::string text) { lines_.emplace_back(std::move(label), std::move(text)); }
  std::string text() const {
    size_t width = 0;
    for (const auto& line : lines_) width = std::max(width, line.first.size());
    std::string result;
    for (const auto& [label, text] : lines_) result += fmt::format("  {:<{}}  {}\n", label, width, text);
    return result;
  }

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

std::string steps_text(const std::vector<Explanation::Step>& steps) {
  std::string text;
  for (const Explanation::Step& step : steps) {
    text += (text.empty() ? "" : ", ") + step.text;
    if (step.bytes > 0) text += " " + plan::bytes_text(step.bytes);
  }
  return text;
}

std::string axis_text(const Explanation::Axis& axis) {
  std::string text = "nothing sharded";
  if (!axis.factor.empty()) text = axis.factor + " sharded";
  if (axis.looks_up) text += ", each rank looks up its own rows";
  if (!axis.partial_operands.empty()) {
    const bool one = axis.partial_operands.size() == 1;
    text = fmt::format("operand{} {} {} Partial", one ? "" : "s", fmt::join(axis.partial_operands, ", "),
                       one ? "stays" : "stay");
  }
  if (axis.output_is_part) text += ", output " + to_string(Placement(Partial(*axis.output_is_part)));
  return text;
}

std::string exchange_text(const Explanation::Exchange& exchange) {
  std::string text = exchange.text;
  if (exchange.times > 1) text += fmt::format(", {} times", exchange.times);
  if (exchange.least < exchange.bytes) return text + " " + plan::bytes_text(exchange.bytes) + " at the most";
  return text + " " + plan::bytes_text(exchange.bytes);
}

std::string moved_text(const Explanation& e) {
  if (e.bytes == 0) return "nothing";
  const std::string most = plan::bytes_text(e.bytes) + " per rank";
  return e.least == e.bytes ? most : "between " + plan::bytes_text(e.least) + " and " + most + ", as the data are";
}

std::string rule_text(const Explanation& e) {
  switch (e.source) {
    case Source::table:
      return e.rule;
    case Source::yours:
      return e.rule + "  (yours)";
    case Source::computed:
      return "computed from shapes";
    case Source::none:
      return "no rule in the tables: it runs whole on every rank";
  }
  return "";
}

void add_operands(Lines& lines, const Explanation& e) {
  size_t width = 0;
  std::vector<std::string> texts;
  for (const Explanation::Operand& operand : e.operands) {
    texts.push_back(operand.tensor ? to_string(*operand.tensor, e.mesh) : "-");
    width = std::max(width, texts.back().size());
  }
  for (size_t i = 0; i < e.operands.size(); ++i) {
    const Explanation::Operand& operand = e.operands[i];
    std::string action = operand.tensor ? "stays" : "left out";
    if (!operand.steps.empty()) {
      const TensorText after{operand.tensor->dtype, operand.tensor->shape, operand.placements};
      action = "becomes " + to_string(after, e.mesh) + ": " + steps_text(operand.steps);
    }
    lines.add(fmt::format("operand {}", i), fmt::format("{:<{}}  {}", texts[i], width, action));
    if (!operand.back.empty()) lines.add("and back", steps_text(operand.back));
  }
}

}  // namespace

Explanation explain(const OperatorCall& call, const Mesh& mesh) { return Explainer(call, mesh).run(); }

std::vector<std::string> rules_of(const std::string& op) {
  return rules::rule_texts(op.find("::") == std::string::npos ? "aten::" + op : op);
}

std::string to_string(const Explanation::Output& output, const Mesh& mesh) {
  // Sizes that are not known are written as ones that are, and then replaced: one function writes tensors.
  std::string text = to_string(TensorText{output.dtype, output.shape, output.placements}, mesh);
  for (size_t at = text.find("-1"); at != std::string::npos; at = text.find("-1", at)) text.replace(at, 2, "?");
  return text;
}

std::string to_string(const Explanation& e) {
  Lines lines;
  const bool whole = e.source == Source::none && e.along.empty();
  if (e.along.empty()) {
    lines.add("rule", rule_text(e));
  } else {
    lines.add("along", e.along);
  }
  if (!e.bound.empty() && !e.rule.starts_with(e.bound)) lines.add("bound", e.bound);
  std::string factors;
  for (const Explanation::Factor& factor : e.factors) {
    factors += fmt::format("{}{}={}{}{}", factors.empty() ? "" : ", ", factor.name, factor.size,
                           factor.kind.empty() ? "" : " ", factor.kind);
  }
  if (!factors.empty()) lines.add("factors", factors);
  for (size_t axis = 0; axis < e.axes.size() && !whole; ++axis) {
    lines.add("axis " + e.mesh.axis_label(static_cast<int64_t>(axis)), axis_text(e.axes[axis]));
  }
  add_operands(lines, e);
  for (const Explanation::Exchange& exchange : e.exchanges) lines.add("exchange", exchange_text(exchange));
  for (size_t i = 0; i < e.outputs.size(); ++i) {
    lines.add(e.outputs.size() == 1 ? "output" : fmt::format("output {}", i), to_string(e.outputs[i], e.mesh));
  }
  if (whole) lines.add("output", "whole on every rank");
  lines.add("moved", moved_text(e));
  if (!e.along.empty()) {
    const std::string bytes = e.bytes_by_rule == 0 ? "nothing" : plan::bytes_text(e.bytes_by_rule);
    lines.add("by rule", bytes + ": " + rule_text(e));
  }
  if (whole) {
    lines.add("note", "operators that torch tags as pointwise have the rule * -> *");
    lines.add("help", "--rule \"* -> *\" shows what a rule would do");
  }
  return e.op + " on " + to_string(e.mesh) + "\n" + lines.text();
}

}  // namespace sherd
