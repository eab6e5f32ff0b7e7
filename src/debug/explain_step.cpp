#include "sherd/explain_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "debug/advice.h"
#include "debug/debug_log.h"
#include "layout/json_text.h"
#include "plan/redistribute.h"

namespace sherd {
namespace {

using Item = StepExplanation::Item;

std::vector<std::string> operand_texts(const detail::MovingCall& moving) {
  std::vector<std::string> texts;
  for (const auto& operand : moving.call.operands) {
    texts.push_back(operand ? to_string(*operand, moving.mesh) : "-");
  }
  return texts;
}

Item item_for(const CommRecord& record, const detail::MovingCallPtr& call) {
  Item item;
  item.pass = record.pass;
  item.operation = record.operation;
  item.module = record.module;
  item.parameters = record.parameters;
  item.scope = record.scope;
  if (call && record.operand >= 0) {
    item.operands = operand_texts(*call);
    item.moved = record.operand;
    item.moved_to = record.operand_to;
  }
  detail::Advice advice = detail::advise(record, call);
  item.why = std::move(advice.why);
  item.instead = std::move(advice.instead);
  return item;
}

bool same(const Item& a, const Item& b) {
  const auto what = [](const Item& i) {
    return std::tie(i.pass, i.operation, i.module, i.scope, i.operands, i.moved, i.moved_to, i.why, i.instead);
  };
  return what(a) == what(b);
}

void add_names(std::vector<std::string>& all, const std::vector<std::string>& more) {
  for (const std::string& name : more) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
}

std::string collectives_text(const Item& item) {
  std::string text;
  for (const auto& [name, count] : item.collectives) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name, count > 1 ? fmt::format(" x{}", count) : "");
  }
  return text;
}

}  // namespace

StepExplanation explain_step(const CommDebugMode& debug) {
  StepExplanation result;
  for (const auto& [record, call] : debug.log().entries()) {
    result.bytes += record.bytes;
    ++result.calls;
    Item fresh = item_for(record, call);
    auto item =
        std::find_if(result.items.begin(), result.items.end(), [&](const Item& known) { return same(known, fresh); });
    if (item == result.items.end()) {
      item = result.items.insert(result.items.end(), std::move(fresh));
    } else {
      add_names(item->parameters, fresh.parameters);
    }
    item->bytes += record.bytes;
    const std::string collective = record.collective + "@" + record.axis;
    auto count = std::find_if(item->collectives.begin(), item->collectives.end(),
                              [&](const auto& each) { return each.first == collective; });
    if (count == item->collectives.end()) count = item->collectives.insert(count, {collective, 0});
    ++count->second;
  }
  std::stable_sort(result.items.begin(), result.items.end(),
                   [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
  return result;
}

StepExplanation explain_step(const std::function<void()>& step) {
  CommDebugMode debug;
  step();
  debug.stop();
  return explain_step(debug);
}

StepExplanation explain_step(const std::function<void()>& step, const torch::nn::Module& module) {
  CommDebugMode debug(module);
  step();
  debug.stop();
  return explain_step(debug);
}

std::string to_string(const StepExplanation& explanation) {
  if (explanation.items.empty()) return "the step communicates nothing\n";
  std::string text =
      fmt::format("the step receives {} in {} collective{}, the most first\n", plan::bytes_text(explanation.bytes),
                  explanation.calls, explanation.calls == 1 ? "" : "s");
  for (size_t i = 0; i < explanation.items.size(); ++i) {
    const Item& item = explanation.items[i];
    text += fmt::format("\n{}. {}: {} for {}", i + 1, plan::bytes_text(item.bytes), collectives_text(item),
                        item.operation.empty() ? "the program" : item.operation);
    if (!item.module.empty()) text += " of " + item.module;
    if (!item.scope.empty()) text += " in " + item.scope;
    text += ", " + to_string(item.pass) + "\n";
    if (item.moved >= 0) {
      text += fmt::format("   operands: {}\n", fmt::join(item.operands, ", "));
      text += fmt::format("   moved:    operand {}, {} -> {}\n", item.moved,
                          item.operands[static_cast<size_t>(item.moved)], item.moved_to);
    }
    text += "   why:      " + item.why + "\n";
    if (!item.instead.empty()) text += "   instead:  " + item.instead + "\n";
  }
  return text;
}

std::string to_json(const StepExplanation& explanation) {
  using detail::json_text;
  std::string items;
  for (const Item& item : explanation.items) {
    std::string collectives;
    for (const auto& [name, count] : item.collectives) {
      collectives += fmt::format("{}{}: {}", collectives.empty() ? "" : ", ", json_text(name), count);
    }
    items += fmt::format(
        "{}{{\"pass\": {}, \"operation\": {}, \"module\": {}, \"parameters\": {}, \"scope\": {}, \"collectives\": "
        "{{{}}}, \"bytes\": {}, \"operands\": {}, \"moved\": {}, \"moved_to\": {}, \"why\": {}, \"instead\": {}}}",
        items.empty() ? "\n" : ",\n", json_text(to_string(item.pass)), json_text(item.operation),
        json_text(item.module), detail::json_list(item.parameters), json_text(item.scope), collectives, item.bytes,
        detail::json_list(item.operands), item.moved >= 0 ? std::to_string(item.moved) : "null",
        json_text(item.moved_to), json_text(item.why), json_text(item.instead));
  }
  return fmt::format("{{\"bytes\": {}, \"calls\": {}, \"items\": [{}]}}\n", explanation.bytes, explanation.calls,
                     items);
}

}  // namespace sherd
