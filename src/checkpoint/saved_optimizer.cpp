#include "checkpoint/saved_optimizer.h"

#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <unordered_set>

#include "checkpoint/state_paths.h"
#include "comm/errors.h"

namespace sherd::detail {
namespace {

using at::Tensor;

constexpr const char* kHelp = "a state as get_optimizer_state_dict or torch.optim's state_dict() gives it";

[[noreturn]] void refuse(const char* operation, const std::string& problem, const std::string& fact,
                         const std::string& value) {
  throw_value_error(ErrorText(operation, problem).fact(fact, value).help(kHelp));
}

void flatten_state(const StateDict& dict, const std::string& prefix, StateDict& flat) {
  for (const auto& [key, value] : dict) {
    const std::string name = prefix + "." + to_string(StatePath{key});
    if (value.dict() != nullptr) {
      flatten_state(*value.dict(), name, flat);
      continue;
    }
    if (value.is_none()) continue;
    if (value.tensor() == nullptr && !value.number()) {
      throw c10::NotImplementedError(ErrorText("get_optimizer_state_dict", "a state that is no tensor has no flat form")
                                         .fact("name", name)
                                         .fact("it is", value.kind())
                                         .help("{.flatten_optimizer_state_dict = false}")
                                         .str());
    }
    flat[name] = value;
  }
}

struct FlatKey {
  std::string parameter;
  std::string field;
};

// Names have dots, and so may fields: the longest name that is one counts.
FlatKey split(const std::string& key, const std::unordered_set<std::string>& known) {
  for (size_t dot = key.rfind('.'); dot != std::string::npos && dot > 0; dot = key.rfind('.', dot - 1)) {
    if (known.contains(key.substr(0, dot))) return {key.substr(0, dot), key.substr(dot + 1)};
  }
  const size_t last = key.rfind('.');
  return last == std::string::npos ? FlatKey{key, ""} : FlatKey{key.substr(0, last), key.substr(last + 1)};
}

bool equal(const StateValue& a, const StateValue& b) {
  const auto same = [](const std::vector<StateValue>& x, const std::vector<StateValue>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& i, const auto& j) { return equal(i, j); });
  };
  if (a.number() && b.number()) return a.number() == b.number();
  if (a.content().index() != b.content().index()) return false;
  if (a.boolean() != nullptr) return *a.boolean() == *b.boolean();
  if (a.text() != nullptr) return *a.text() == *b.text();
  if (a.tuple() != nullptr) return same(a.tuple()->items, b.tuple()->items);
  if (a.list() != nullptr) return same(*a.list(), *b.list());
  if (a.tensor() != nullptr) return a.tensor()->equal(*b.tensor());
  return a.is_none();
}

StateDict from_flat(const char* operation, const StateDict& flat, const ParameterNames& names,
                    const Optimizers& optimizers) {
  std::unordered_set<std::string> known;
  for (const auto& [parameter, all] : names) known.insert(all.begin(), all.end());
  StateDict state;
  StateDict options;
  for (const auto& [key, value] : flat) {
    const std::string name = to_string(StatePath{key});
    const bool is_state = name.starts_with("state.");
    if (!is_state && !name.starts_with("param_groups.")) {
      refuse(operation, "a key is neither of a state nor of a group", "key", name);
    }
    const FlatKey parts = split(name.substr(is_state ? 6 : 13), known);
    set_element(is_state ? state : options, {parts.parameter, parts.field}, value);
  }
  StateList groups;
  for (const torch::optim::Optimizer& optimizer : optimizers) {
    for (const auto& group : optimizer.param_groups()) {
      StateDict made;
      StateList params;
      for (const Tensor& parameter : group.params()) {
        for (const std::string& name : names_of(operation, names, parameter)) {
          const StateValue* of_parameter = options.find(name);
          if (of_parameter == nullptr || of_parameter->dict() == nullptr) continue;
          for (const auto& [key, value] : *of_parameter->dict()) {
            const StateValue* before = made.find(key);
            if (before != nullptr && !equal(*before, value)) {
              throw_error(ErrorText(operation, "parameters of one group have different options")
                              .fact("option", to_string(StatePath{key}))
                              .fact("parameter", name)
                              .help("groups as they were when the state was saved"));
            }
            made[key] = value;
          }
          params.emplace_back(name);
        }
      }
      made[kParams] = std::move(params);
      groups.emplace_back(std::move(made));
    }
  }
  return {{kState, std::move(state)}, {kGroups, std::move(groups)}};
}

// A dict by numbers may have become one by texts, or a list, on its way through a file.
const StateValue* numbered(const StateValue& state, int64_t number) {
  if (const StateDict* dict = state.dict()) {
    const StateValue* found = dict->find(number);
    return found != nullptr ? found : dict->find(fmt::format("{}", number));
  }
  const StateList* list = state.list();
  return list != nullptr && number < static_cast<int64_t>(list->size()) ? &(*list)[static_cast<size_t>(number)]
                                                                        : nullptr;
}

const StateList& group_list(const char* operation, const StateDict& state) {
  const StateValue* groups = state.find(kGroups);
  if (groups == nullptr || groups->list() == nullptr) {
    refuse(operation, "the state has no list of groups", kGroups, groups == nullptr ? "missing" : groups->kind());
  }
  return *groups->list();
}

const StateList& params_of(const char* operation, const StateValue& group) {
  const StateValue* params = group.dict() != nullptr ? group.dict()->find(kParams) : nullptr;
  if (params == nullptr || params->list() == nullptr) {
    refuse(operation, "a group has no list of its parameters", kParams, params == nullptr ? "missing" : params->kind());
  }
  return *params->list();
}

// Numbers say nothing but the order: it must be that of the optimizer.
StateDict from_numbers(const char* operation, const StateDict& state, const ParameterNames& names,
                       const Optimizers& optimizers) {
  const StateList& saved = group_list(operation, state);
  if (optimizers.size() != 1) {
    throw_value_error(ErrorText(operation, "numbers of parameters are those of one optimizer")
                          .fact("optimizers", fmt::format("{}", optimizers.size()))
                          .help("load each optimizer from its own state"));
  }
  const auto& groups = optimizers.front().get().param_groups();
  if (saved.size() != groups.size()) {
    throw_value_error(ErrorText(operation, "the state has another number of groups")
                          .fact("optimizer", fmt::format("{}", groups.size()))
                          .fact("state", fmt::format("{}", saved.size()))
                          .help("an optimizer with the groups that were saved"));
  }
  StateDict by_name;
  StateList made;
  for (size_t i = 0; i < groups.size(); ++i) {
    const StateList& numbers = params_of(operation, saved[i]);
    if (numbers.size() != groups[i].params().size()) {
      throw_value_error(ErrorText(operation, "a group has another number of parameters")
                            .fact("group", fmt::format("{}", i))
                            .fact("optimizer", fmt::format("{}", groups[i].params().size()))
                            .fact("state", fmt::format("{}", numbers.size()))
                            .help("an optimizer with the groups that were saved"));
    }
    StateDict group = *saved[i].dict();
    StateList params;
    for (size_t k = 0; k < numbers.size(); ++k) {
      const std::string& name = names_of(operation, names, groups[i].params()[k]).front();
      params.emplace_back(name);
      const int64_t* number = numbers[k].integer();
      const StateValue* value =
          number != nullptr && state.contains(kState) ? numbered(state.at(kState), *number) : nullptr;
      if (value != nullptr && !value->is_none()) by_name[name] = *value;
    }
    group[kParams] = std::move(params);
    made.emplace_back(std::move(group));
  }
  return {{kState, std::move(by_name)}, {kGroups, std::move(made)}};
}

bool has_numbers(const char* operation, const StateDict& state) {
  for (const StateValue& group : group_list(operation, state)) {
    for (const StateValue& parameter : params_of(operation, group)) {
      if (parameter.integer() != nullptr) return true;
      if (parameter.text() == nullptr) refuse(operation, "a parameter has no name", "it is", parameter.kind());
    }
  }
  return false;
}

}  // namespace

const std::vector<std::string>& names_of(const char* operation, const ParameterNames& names, const Tensor& parameter) {
  const auto found = names.find(parameter.unsafeGetTensorImpl());
  if (found != names.end()) return found->second;
  throw_value_error(ErrorText(operation, "the module has not all parameters of the optimizer")
                        .fact("parameter", StateValue(parameter).kind())
                        .help("the module whose parameters the optimizer was made of"));
}

StateDict flattened(const StateDict& by_names) {
  StateDict flat;
  for (const auto& [name, state] : *by_names.at(kState).dict()) {
    flatten_state(*state.dict(), "state." + to_string(StatePath{name}), flat);
  }
  for (const StateValue& group : *by_names.at(kGroups).list()) {
    for (const StateValue& parameter : *group.dict()->at(kParams).list()) {
      for (const auto& [key, value] : *group.dict()) {
        if (key == StateKey(kParams)) continue;
        flat["param_groups." + *parameter.text() + "." + to_string(StatePath{key})] = value;
      }
    }
  }
  return flat;
}

StateDict by_names(const char* operation, const StateDict& state, const ParameterNames& names,
                   const Optimizers& optimizers) {
  if (!state.contains(kState) && !state.contains(kGroups)) return from_flat(operation, state, names, optimizers);
  // The states may be missing: a dict of nothing does not survive PyTorch's files.
  if (has_numbers(operation, state)) return from_numbers(operation, state, names, optimizers);
  StateDict result = state;
  if (!state.contains(kState)) result[kState] = StateDict();
  if (result.at(kState).dict() == nullptr) {
    refuse(operation, "the states are no dict", kState, result.at(kState).kind());
  }
  return result;
}

}  // namespace sherd::detail
