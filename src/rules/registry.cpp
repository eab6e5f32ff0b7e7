#include "rules/registry.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "rules/bind.h"
#include "sherd/error.h"

namespace sherd::rules {
namespace {

constexpr uint64_t kNoRules = 1;

struct Known {
  std::vector<const Row*> rows;  // in order: the first that holds wins
  const FunctionRow* function = nullptr;
};

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = text.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find(' ', begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return result;
}

using Table = std::unordered_map<std::string_view, Known>;

const Table& builtin() {
  static const Table table = [] {
    Table result;
    for (const auto rows : {pointwise_rows(), contraction_rows(), reduction_rows(), normalization_rows(),
                            indexing_rows(), spatial_rows(), factory_rows(), loss_rows(), linear_algebra_rows()}) {
      for (const Row& row : rows) {
        for (const std::string_view op : words(row.ops)) result[op].rows.push_back(&row);
      }
    }
    for (const auto rows : {view_functions(), network_functions(), factory_functions(), indexing_functions(),
                            linear_algebra_functions(), fourier_functions(), spatial_functions()}) {
      for (const FunctionRow& row : rows) {
        for (const std::string_view op : words(row.ops)) result[op].function = &row;
      }
    }
    return result;
  }();
  return table;
}

struct UserRule {
  std::string text;
  Rule rule;
};

struct UserRules {
  std::mutex mutex;
  std::deque<UserRule> kept;  // rules refer to their texts, so neither is ever moved
  std::map<std::string, const UserRule*, std::less<>> by_op;
};

UserRules& user_rules() {
  static auto* rules = new UserRules;  // never destroyed: operators may run until the very end of the process
  return *rules;
}

const UserRule* find_user_rule(const std::string& op, const std::string& overload) {
  UserRules& rules = user_rules();
  if (rules_version() == kNoRules) return nullptr;
  const std::lock_guard lock(rules.mutex);
  for (const std::string& name : {op + "." + overload, op, base_name(op)}) {
    if (const auto found = rules.by_op.find(name); found != rules.by_op.end()) return found->second;
  }
  return nullptr;
}

// Rows are named "max.dim", "max" for all overloads, or "max.default" for the one without a name.
std::string row_name(std::string_view name, std::string_view overload) {
  return std::string(name) + "." + std::string(overload.empty() ? "default" : overload);
}

std::optional<BoundRule> call_function(const FunctionRow& row, const OpCall& call, std::string& why) {
  if (call.tensors.size() < row.tensors) {
    why = "the rule has " + std::to_string(row.tensors) + " inputs, given " + std::to_string(call.tensors.size());
    return std::nullopt;
  }
  if (!row.needs.empty() && call.find(row.needs) == nullptr) {
    why = "it needs the argument " + std::string(row.needs);
    return std::nullopt;
  }
  why = "the shapes or arguments do not fit";
  if (call.num_outputs > 0) return row.function(call);
  OpCall counted = call;
  counted.num_outputs = row.outputs;
  return row.function(counted);
}

std::string_view without_aten(std::string_view op) { return op.starts_with("aten::") ? op.substr(6) : op; }

}  // namespace

std::atomic<uint64_t> rule_count{kNoRules};

std::string base_name(std::string_view op) {
  const size_t colon = op.find("::");
  const std::string_view name = colon == std::string_view::npos ? op : op.substr(colon + 2);
  const bool in_place = name.size() > 1 && name.ends_with('_') && !name.ends_with("__");
  return std::string(op.substr(0, op.size() - (in_place ? 1 : 0)));
}

std::optional<BoundRule> find_rule(const OpCall& call) {
  auto found = look_up(call);
  if (!found) return std::nullopt;
  return std::move(found->rule);
}

std::optional<FoundRule> look_up(const OpCall& call, std::vector<Refusal>* refusals) {
  std::string why;
  const auto refused = [&](std::string_view text) {
    if (refusals != nullptr) refusals->push_back({std::string(text), why});
  };
  const auto try_row = [&](const Rule& rule) { return bind(rule, call, refusals != nullptr ? &why : nullptr); };
  if (const UserRule* user = find_user_rule(call.op, call.overload)) {
    if (auto rule = try_row(user->rule)) return FoundRule{std::move(*rule), user->text, true};
    refused(user->text);
    return std::nullopt;
  }
  const std::string base = base_name(call.op);
  const std::string name(without_aten(base));
  for (const std::string& key : {row_name(name, call.overload), name, std::string(without_aten(call.op))}) {
    const auto found = builtin().find(key);
    if (found == builtin().end()) continue;
    if (found->second.function != nullptr) {
      if (auto rule = call_function(*found->second.function, call, why)) return FoundRule{std::move(*rule), {}, false};
      refused("computed from shapes");
    }
    for (const Row* row : found->second.rows) {
      if (auto rule = try_row(row->rule)) return FoundRule{std::move(*rule), std::string(row->text), false};
      refused(row->text);
    }
    if (key == name && name == without_aten(call.op)) break;
  }
  return std::nullopt;
}

std::vector<std::string> rule_texts(std::string_view op) {
  std::vector<std::string> texts;
  {
    UserRules& rules = user_rules();
    const std::lock_guard lock(rules.mutex);
    if (const auto found = rules.by_op.find(op); found != rules.by_op.end()) texts.push_back(found->second->text);
  }
  const std::string base = base_name(op);
  const std::string_view name = without_aten(base);
  for (const auto& [key, known] : builtin()) {
    if (key != name && !(key.starts_with(name) && key.substr(name.size()).starts_with("."))) continue;
    if (known.function != nullptr) texts.emplace_back("computed from shapes");
    for (const Row* row : known.rows) texts.emplace_back(row->text);
  }
  return texts;
}

std::string first_rule_text(std::string_view op) {
  const std::vector<std::string> texts = rule_texts(op);
  return texts.empty() ? "* -> *" : texts.front();
}

Rule checked_rule(std::string_view operation, const std::string& op, std::string_view text) {
  try {
    return parse_rule(text);
  } catch (const RuleError& error) {
    throw std::invalid_argument(ErrorText(operation, error.problem)
                                    .fact("operator", op)
                                    .fact("rule", "\"" + std::string(text) + "\"")
                                    .fact("at", "character " + std::to_string(error.at))
                                    .help("\"i k, k j -> i j | reduce k, linear 0 1\""));
  }
}

bool has_user_rule(const std::string& op, const std::string& overload) {
  return find_user_rule(op, overload) != nullptr;
}

void add_rule(const std::string& op, const std::string& text) {
  if (op.find("::") == std::string::npos) {
    throw std::invalid_argument(
        ErrorText("register_rule", "an operator's name has a namespace")
            .fact("given", "\"" + op + "\"")
            .help("sherd::register_rule(\"mylib::" + op + "\", \"i k, k j -> i j | reduce k\")"));
  }
  UserRules& rules = user_rules();
  const std::lock_guard lock(rules.mutex);
  UserRule& kept = rules.kept.emplace_back(UserRule{text, {}});
  try {
    kept.rule = checked_rule("register_rule", op, kept.text);
  } catch (const std::invalid_argument&) {
    rules.kept.pop_back();
    throw;
  }
  rules.by_op[op] = &kept;
  rule_count.fetch_add(1);
}

std::vector<std::string> operators_with_rules() {
  std::vector<std::string> names;
  for (const auto& [name, known] : builtin()) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sherd::rules
