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
  RuleFunction function = nullptr;
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
                            indexing_rows(), spatial_rows(), factory_rows()}) {
      for (const Row& row : rows) {
        for (const std::string_view op : words(row.ops)) result[op].rows.push_back(&row);
      }
    }
    for (const auto rows : {view_functions(), network_functions(), factory_functions()}) {
      for (const FunctionRow& row : rows) {
        for (const std::string_view op : words(row.ops)) result[op].function = row.function;
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

const UserRule* find_user_rule(const OpCall& call) {
  UserRules& rules = user_rules();
  if (rules_version() == kNoRules) return nullptr;
  const std::lock_guard lock(rules.mutex);
  for (const std::string& name : {call.op + "." + call.overload, call.op, base_name(call.op)}) {
    if (const auto found = rules.by_op.find(name); found != rules.by_op.end()) return found->second;
  }
  return nullptr;
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
  if (const UserRule* rule = find_user_rule(call)) return bind(rule->rule, call);
  const std::string base = base_name(call.op);
  const std::string name(without_aten(base));
  for (const std::string& key : {name + "." + call.overload, name, std::string(without_aten(call.op))}) {
    const auto found = builtin().find(key);
    if (found == builtin().end()) continue;
    if (found->second.function != nullptr) {
      if (auto rule = found->second.function(call)) return rule;
    }
    for (const Row* row : found->second.rows) {
      if (auto rule = bind(row->rule, call)) return rule;
    }
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
    kept.rule = parse_rule(kept.text);
  } catch (const RuleError& error) {
    rules.kept.pop_back();
    throw std::invalid_argument(ErrorText("register_rule", error.problem)
                                    .fact("operator", op)
                                    .fact("rule", "\"" + text + "\"")
                                    .fact("at", "character " + std::to_string(error.at))
                                    .help("\"i k, k j -> i j | reduce k, linear 0 1\""));
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
