#pragma once
// The notation for what an operator does to shards, one line per operator:
//
//   "i k, k j -> i j | reduce k, linear 0 1"
//
// Operands are lists of factors, one per dim. A factor that stands in an input and in an output can be sharded in all
// of them at once. Clauses say what else holds. docs/rules.md has the grammar.
//
// parse_rule is constexpr, so a malformed row of a table does not compile.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "sherd/placement.h"

namespace sherd::rules {

/// Thrown by parse_rule; in a constant expression it becomes a compile error that quotes the row.
struct RuleError {
  const char* problem;
  size_t at;  // character of the text
};

inline constexpr size_t kMaxOperands = 12;
inline constexpr size_t kMaxDims = 10;
inline constexpr size_t kMaxFactors = 24;
inline constexpr size_t kMaxSets = 6;

/// A dim of an operand: a factor, or one of the marks below.
using Token = int8_t;
inline constexpr Token kStar = -1;  // "*": all dims not named, aligned from the right, broadcast
inline constexpr Token kOne = -2;   // "1": a dim that is never sharded

struct OperandPattern {
  std::array<Token, kMaxDims> dims{};
  uint8_t ndim = 0;
  bool added = false;   // "+": broadcast against the output and added in; Partial where the output is
  bool unused = false;  // "-": an operand that must be whole on every rank
};

enum class FactorKind : uint8_t {
  pass,    // can be sharded
  reduce,  // can be sharded; outputs without it are then Partial
  whole,   // every rank needs all of it
  mask,    // rows looked up by index: ranks answer for their own rows, the outputs are Partial
};

struct FactorRule {
  std::string_view name;
  FactorKind kind = FactorKind::pass;
  ReduceOp op = ReduceOp::sum;
  std::string_view argument = {};  // "d=dim": the dims that this argument of the operator names
  bool same = false;               // "same k": outputs without it do not depend on it
};

/// Inputs that may be Partial at the same time, the others being whole; the outputs are then Partial.
struct LinearSet {
  uint32_t inputs = 0;  // bit i: input i
};

/// "when groups=1": the row holds where an argument has this value; "when is_causal": where it is true.
struct Guard {
  std::string_view argument = {};
  int64_t value = 1;
};

struct Rule {
  std::array<OperandPattern, kMaxOperands> inputs{};
  std::array<OperandPattern, kMaxOperands> outputs{};
  std::array<FactorRule, kMaxFactors> factors{};
  std::array<LinearSet, kMaxSets> linear{};
  Guard guard;
  uint32_t shape_only = 0;              // "shape 0": of these inputs the shape matters, not the values
  std::string_view size_argument = {};  // "size input_size": the argument that holds the size of the first output
  bool takes_empty = false;             // "empty": the operator knows what to do with a tensor without rows
  uint8_t num_inputs = 0;
  uint8_t num_outputs = 0;
  uint8_t num_factors = 0;
  uint8_t num_linear = 0;
};

namespace detail {

constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

class RuleParser {
 public:
  constexpr explicit RuleParser(std::string_view text) : text_(text) {}

  constexpr Rule parse() {
    rule_.num_inputs = operands(rule_.inputs, true);
    expect("->");
    rule_.num_outputs = operands(rule_.outputs, false);
    if (accept("|")) {
      clause();
      while (accept(",")) clause();
    }
    skip();
    if (at_ != text_.size()) throw RuleError{"text after the rule's end", at_};
    check_one_sided_factors();
    return rule_;
  }

 private:
  constexpr void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  constexpr bool accept(std::string_view word) {
    skip();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  constexpr void expect(std::string_view word) {
    if (!accept(word)) throw RuleError{"expected '->' between inputs and outputs", at_};
  }
  constexpr std::string_view word() {
    skip();
    const size_t begin = at_;
    if (at_ < text_.size() && is_letter(text_[at_])) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }
  constexpr int64_t number() {
    skip();
    const bool negative = accept("-");
    if (at_ == text_.size() || !is_digit(text_[at_])) throw RuleError{"expected a number", at_};
    int64_t value = 0;
    while (at_ < text_.size() && is_digit(text_[at_])) {
      if (value > 1'000'000'000) throw RuleError{"a number is too large", at_};
      value = value * 10 + (text_[at_++] - '0');
    }
    return negative ? -value : value;
  }
  constexpr bool next_is_digit() {
    skip();
    return at_ < text_.size() && is_digit(text_[at_]);
  }
  constexpr bool next_is_letter() {
    skip();
    return at_ < text_.size() && is_letter(text_[at_]);
  }

  constexpr Token factor(std::string_view name, bool may_add) {
    for (uint8_t i = 0; i < rule_.num_factors; ++i) {
      if (rule_.factors[i].name == name) return static_cast<Token>(i);
    }
    if (!may_add) throw RuleError{"a clause names a factor that no operand has", at_};
    if (rule_.num_factors == kMaxFactors) throw RuleError{"too many factors", at_};
    rule_.factors[rule_.num_factors].name = name;
    return static_cast<Token>(rule_.num_factors++);
  }

  constexpr uint8_t operands(std::array<OperandPattern, kMaxOperands>& list, bool inputs) {
    uint8_t count = 0;
    do {
      if (count == kMaxOperands) throw RuleError{"too many operands", at_};
      list[count++] = operand(inputs);
    } while (accept(","));
    return count;
  }

  constexpr OperandPattern operand(bool input) {
    OperandPattern result;
    skip();
    if (input && text_.substr(at_, 2) != "->" && accept("-")) {
      result.unused = true;
      return result;
    }
    if (accept("+")) {
      if (!input) throw RuleError{"'+' marks inputs", at_};
      result.added = true;
      return result;
    }
    bool star = false;
    while (true) {
      Token token = kOne;
      if (accept("*")) {
        if (star) throw RuleError{"one '*' per operand", at_};
        star = true;
        token = kStar;
      } else if (next_is_digit()) {
        if (number() != 1) throw RuleError{"the only number that stands for a dim is 1", at_};
      } else if (next_is_letter()) {
        token = factor(word(), true);
      } else {
        return result;
      }
      for (uint8_t d = 0; d < result.ndim; ++d) {
        if (token >= 0 && result.dims[d] == token) throw RuleError{"a factor stands twice in one operand", at_};
      }
      if (result.ndim == kMaxDims) throw RuleError{"too many dims", at_};
      result.dims[result.ndim++] = token;
    }
  }

  constexpr ReduceOp reduce_op() {
    const std::string_view name = word();
    if (name == "sum") return ReduceOp::sum;
    if (name == "avg") return ReduceOp::avg;
    if (name == "min") return ReduceOp::min;
    if (name == "max") return ReduceOp::max;
    if (name == "product") return ReduceOp::product;
    if (name == "band") return ReduceOp::band;
    if (name == "bor") return ReduceOp::bor;
    throw RuleError{"a reduction is sum, avg, min, max, product, band or bor", at_};
  }

  constexpr void mark(FactorKind kind, ReduceOp op) {
    if (!next_is_letter()) throw RuleError{"the clause needs a factor", at_};
    while (next_is_letter()) {
      FactorRule& what = rule_.factors[static_cast<size_t>(factor(word(), false))];
      what.kind = kind;
      what.op = op;
    }
  }

  constexpr void same() {
    if (!next_is_letter()) throw RuleError{"the clause needs a factor", at_};
    while (next_is_letter()) rule_.factors[static_cast<size_t>(factor(word(), false))].same = true;
  }

  constexpr bool has_input(int64_t input) const { return input >= 0 && input < rule_.num_inputs; }

  constexpr void linear() {
    if (!next_is_digit()) throw RuleError{"linear needs the numbers of inputs", at_};
    while (next_is_digit()) {
      LinearSet set;
      do {
        const int64_t input = number();
        if (!has_input(input)) throw RuleError{"linear names an input that the rule does not have", at_};
        set.inputs |= 1U << input;
      } while (accept("+"));
      if (rule_.num_linear == kMaxSets) throw RuleError{"too many linear sets", at_};
      rule_.linear[rule_.num_linear++] = set;
    }
  }

  constexpr void clause() {
    const std::string_view verb = word();
    if (verb == "reduce") {
      ReduceOp op = ReduceOp::sum;
      if (accept("(")) {
        op = reduce_op();
        if (!accept(")")) throw RuleError{"expected ')'", at_};
      }
      mark(FactorKind::reduce, op);
    } else if (verb == "whole") {
      mark(FactorKind::whole, ReduceOp::sum);
    } else if (verb == "mask") {
      mark(FactorKind::mask, ReduceOp::sum);
    } else if (verb == "same") {
      same();
    } else if (verb == "linear") {
      linear();
    } else if (verb == "shape") {
      if (!next_is_digit()) throw RuleError{"shape needs the numbers of inputs", at_};
      while (next_is_digit()) {
        const int64_t input = number();
        if (!has_input(input)) throw RuleError{"shape names an input that the rule does not have", at_};
        rule_.shape_only |= 1U << input;
      }
    } else if (verb == "size") {
      rule_.size_argument = word();
      if (rule_.size_argument.empty()) throw RuleError{"size needs an argument of the operator", at_};
    } else if (verb == "empty") {
      rule_.takes_empty = true;
    } else if (verb == "when") {
      rule_.guard.argument = word();
      if (rule_.guard.argument.empty()) throw RuleError{"when needs an argument of the operator", at_};
      if (accept("=")) rule_.guard.value = number();
    } else if (!verb.empty() && accept("=")) {
      FactorRule& what = rule_.factors[static_cast<size_t>(factor(verb, false))];
      what.argument = word();
      if (what.argument.empty()) throw RuleError{"expected the name of an argument", at_};
    } else {
      throw RuleError{"a clause is reduce, whole, mask, same, linear, shape, size, empty, when, or factor=argument",
                      at_};
    }
  }

  constexpr bool stands_in(const std::array<OperandPattern, kMaxOperands>& list, uint8_t count, Token token) const {
    for (uint8_t i = 0; i < count; ++i) {
      for (uint8_t d = 0; d < list[i].ndim; ++d) {
        if (list[i].dims[d] == token) return true;
      }
    }
    return false;
  }

  constexpr void check_one_sided_factors() const {
    for (uint8_t i = 0; i < rule_.num_factors; ++i) {
      const auto token = static_cast<Token>(i);
      const bool in = stands_in(rule_.inputs, rule_.num_inputs, token);
      const bool out = stands_in(rule_.outputs, rule_.num_outputs, token);
      const FactorKind kind = rule_.factors[i].kind;
      const auto at = static_cast<size_t>(rule_.factors[i].name.data() - text_.data());
      if (in && !out && kind == FactorKind::pass) throw RuleError{"a factor on one side only needs a clause", at};
      if (!in && out && kind != FactorKind::whole) throw RuleError{"a factor of outputs alone must be whole", at};
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  Rule rule_;
};

}  // namespace detail

/// Throws RuleError. The result refers to `text`.
constexpr Rule parse_rule(std::string_view text) { return detail::RuleParser(text).parse(); }

/// One line of a table: operators that share a rule, separated by spaces, and its text.
struct Row {
  std::string_view ops;
  std::string_view text;
  Rule rule;
  consteval Row(const char* names, const char* rule_text) : ops(names), text(rule_text), rule(parse_rule(rule_text)) {}
};

}  // namespace sherd::rules
