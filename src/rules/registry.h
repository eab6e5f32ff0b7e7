#pragma once
// Which rule an operator has: the user's, a function for operators whose rule depends on shapes, or a row of a table.

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rules/bound_rule.h"
#include "rules/op_call.h"
#include "rules/rule.h"

namespace sherd::rules {

/// The rule for a call, or nothing where the operator has none that fits. In-place and out= forms have the rule of
/// their base operator. Thread safe.
std::optional<BoundRule> find_rule(const OpCall& call);

/// A rule that did not fit, and why.
struct Refusal {
  std::string text;
  std::string why;
};

struct FoundRule {
  BoundRule rule;
  std::string text;    // the row's or the user's; empty where the rule is computed from shapes
  bool yours = false;  // registered by the user
};

/// As find_rule, with where the rule comes from. `refusals` gets those that were tried and did not fit; it stays empty
/// where the operator has no rule at all.
std::optional<FoundRule> look_up(const OpCall& call, std::vector<Refusal>* refusals = nullptr);

/// The texts of the rows that speak for an operator ("aten::mm"), or "computed from shapes"; empty where there is none.
std::vector<std::string> rule_texts(std::string_view op);
/// The first of these; where there is none, "* -> *", which pointwise operators have.
std::string first_rule_text(std::string_view op);

/// parse_rule with an error for people: throws std::invalid_argument that starts with `operation`. The result refers to
/// `text`.
Rule checked_rule(std::string_view operation, const std::string& op, std::string_view text);

/// Whether a user gave this operator a rule: then it is asked before anything else that sherd knows of the operator.
bool has_user_rule(const std::string& op, const std::string& overload);

/// Adds or replaces a user's rule. `op` is "ns::name" or "ns::name.overload".
/// Throws std::invalid_argument for bad text.
void add_rule(const std::string& op, const std::string& text);

/// Grows whenever a rule is added, or outdate_plans() is called: what was decided before is no longer valid.
extern std::atomic<uint64_t> rule_count;
inline uint64_t rules_version() { return rule_count.load(std::memory_order_acquire); }
inline void outdate_plans() { rule_count.fetch_add(1); }

/// "aten::add_" -> "aten::add": the operator whose rule an in-place operator has.
std::string base_name(std::string_view op);

/// All operators with a built-in rule, sorted, without "aten::".
std::vector<std::string> operators_with_rules();

// The tables, one per family of operators; each stands in the file of that name.
std::span<const Row> pointwise_rows();
std::span<const Row> contraction_rows();
std::span<const Row> reduction_rows();
std::span<const Row> normalization_rows();
std::span<const Row> indexing_rows();
std::span<const Row> spatial_rows();
std::span<const Row> factory_rows();
std::span<const Row> loss_rows();
std::span<const Row> linear_algebra_rows();

/// A rule that depends on shapes.
using RuleFunction = std::optional<BoundRule> (*)(const OpCall&);
struct FunctionRow {
  std::string_view ops;
  RuleFunction function;
  size_t tensors = 1;           // the function is asked for calls with at least so many
  int outputs = 1;              // what the operators return
  std::string_view needs = {};  // an argument without which the rule is not known
};
std::span<const FunctionRow> view_functions();
std::span<const FunctionRow> network_functions();
std::span<const FunctionRow> factory_functions();
std::span<const FunctionRow> indexing_functions();
std::span<const FunctionRow> linear_algebra_functions();
std::span<const FunctionRow> fourier_functions();
std::span<const FunctionRow> spatial_functions();

}  // namespace sherd::rules
