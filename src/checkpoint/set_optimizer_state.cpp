#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <unordered_map>
#include <unordered_set>

#include "checkpoint/full_state.h"
#include "checkpoint/optimizer_format.h"
#include "checkpoint/placing.h"
#include "checkpoint/saved_optimizer.h"
#include "checkpoint/sharing.h"
#include "checkpoint/skeleton.h"
#include "comm/errors.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/model_state.h"
#include "sherd/world.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::GroupField;
using detail::OptimizerFormat;
using detail::OptimizerOptions;
using detail::OptimizerParamState;
using detail::StateField;
using torch::optim::Optimizer;

constexpr const char* kOperation = "set_optimizer_state_dict";

std::string text_of(const StateKey& key) { return to_string(StatePath{key}); }

[[noreturn]] void refuse_missing(const std::string& name) {
  detail::throw_error(ErrorText(kOperation, "the state lacks what the optimizer needs")
                          .fact("missing", name)
                          .help("{.strict = false} to keep what the optimizer has"));
}

// A value of a wrong kind is named.
template <class Set>
void named(const std::string& name, Set&& set) {
  try {
    set();
  } catch (const c10::ValueError& error) {
    detail::throw_value_error(ErrorText(kOperation, "a value does not fit")
                                  .fact("name", name)
                                  .fact("because", error.what_without_backtrace())
                                  .help("a state of the same optimizer"));
  }
}

// Everything that will be changed, found and checked before anything is.
struct OptionChange {
  OptimizerOptions* options;
  const GroupField* field;
  StateValue value;
};
struct StateChange {
  Optimizer* optimizer;
  const OptimizerFormat* format;
  OptimizerOptions* options;
  Tensor parameter;
  struct Value {
    const StateField* field;
    std::string name;  // in the state, with the name by which the parameter was found there
    StateValue value;
  };
  std::vector<Value> values;
};

class Setter {
 public:
  Setter(const torch::nn::Module& module, const Optimizers& optimizers, const StateDictOptions& options)
      : names_(detail::parameter_names(module)), optimizers_(optimizers), strict_(options.strict) {}

  void check(const StateDict& any_form) {
    const StateDict state = detail::by_names(kOperation, any_form, names_, optimizers_);
    states_ = *state.at(detail::kState).dict();
    groups_ = *state.at(detail::kGroups).list();
    find_groups_of_names();
    size_t number = 0;
    for (Optimizer& optimizer : optimizers_) {
      const OptimizerFormat& format = detail::format_of(kOperation, optimizer);
      bool is_first = true;
      for (auto& group : optimizer.param_groups()) {
        const auto options = group.options().clone();
        check_group(format, group, fmt::format("{}.{}", detail::kGroups, number++), *options);
        for (const Tensor& parameter : group.params()) {
          if (is_first || !format.is_shared) check_state(format, optimizer, group.options(), *options, parameter);
          used_.insert(detail::names_of(kOperation, names_, parameter).begin(),
                       detail::names_of(kOperation, names_, parameter).end());
          is_first = false;
        }
      }
    }
    for (const auto& [name, value] : states_) {
      if (!used_.contains(text_of(name))) keys_.unexpected.push_back("state." + text_of(name));
    }
  }

  void apply() {
    change_options();
    for (const StateChange& change : state_changes_) {
      OptimizerParamState& state = state_of(change);
      for (const StateChange::Value& item : change.values) {
        if (item.field->like_parameter) {
          detail::place(target_of(change, state, *item.field), *item.value.tensor());
        } else {
          item.field->set(state, fitted(item.value, change.parameter));
        }
      }
    }
  }

  // The same with the tensors that rank 0 has.
  void apply_from_rank0() {
    change_options();
    std::vector<detail::SharedTensor> tensors;
    for (const StateChange& change : state_changes_) {
      OptimizerParamState& state = state_of(change);
      for (const StateChange::Value& item : change.values) {
        if (item.field->like_parameter) tensors.push_back({item.name, target_of(change, state, *item.field)});
      }
    }
    std::map<std::string, Tensor> values;
    for (const FlatLeaf& leaf : flatten_state_dict({{detail::kState, states_}})) {
      if (leaf.value.tensor() != nullptr) values[leaf.name] = *leaf.value.tensor();
    }
    // Lists of vectors are the same on every rank.
    std::map<std::string, Tensor> arrived;
    for (const StateChange& change : state_changes_) {
      for (const StateChange::Value& item : change.values) {
        if (!item.field->like_parameter) add_memory(item, change.parameter, values, arrived);
      }
    }
    for (const auto& [name, tensor] : arrived) tensors.push_back({name, tensor});
    detail::share_out(tensors, values);
    for (const StateChange& change : state_changes_) {
      for (const StateChange::Value& item : change.values) {
        if (item.field->like_parameter) continue;
        item.field->set(state_of(change), fitted(with_arrived(item.name, item.value, arrived), change.parameter));
      }
    }
  }

  IncompatibleKeys keys() { return std::move(keys_); }

 private:
  // The saved group of the group's parameters; null where there is none.
  const StateDict* find_group(const torch::optim::OptimizerParamGroup& group) const {
    const StateDict* found = nullptr;
    for (const Tensor& parameter : group.params()) {
      const StateDict* of_parameter = group_of(parameter);
      if (of_parameter == nullptr || of_parameter == found) continue;
      if (found != nullptr) {
        detail::throw_value_error(ErrorText(kOperation, "parameters of one group were saved in several")
                                      .fact("parameter", name_of(parameter))
                                      .help("an optimizer with the groups that were saved"));
      }
      found = of_parameter;
    }
    return group.params().empty() ? empty_group() : found;
  }

  const StateDict* group_of(const Tensor& parameter) const {
    for (const std::string& name : detail::names_of(kOperation, names_, parameter)) {
      const auto found = groups_of_names_.find(name);
      if (found != groups_of_names_.end()) return found->second;
    }
    return nullptr;
  }

  void find_groups_of_names() {
    for (const StateValue& saved : groups_) {
      for (const StateValue& item : *saved.dict()->at(detail::kParams).list()) {
        groups_of_names_.try_emplace(*item.text(), saved.dict());
      }
    }
  }

  // Groups without parameters have no names: one is itself, several are nobody.
  const StateDict* empty_group() const {
    const StateDict* found = nullptr;
    for (const StateValue& saved : groups_) {
      if (!saved.dict()->at(detail::kParams).list()->empty()) continue;
      if (found != nullptr) {
        detail::throw_value_error(
            ErrorText(kOperation, "several groups of the state have no parameters").help("one such group at most"));
      }
      found = saved.dict();
    }
    return found;
  }

  std::string name_of(const Tensor& parameter) const { return detail::names_of(kOperation, names_, parameter).front(); }

  void check_group(const OptimizerFormat& format, torch::optim::OptimizerParamGroup& group, const std::string& name,
                   OptimizerOptions& options) {
    const StateDict* saved = find_group(group);
    if (saved == nullptr) {
      if (strict_) refuse_missing(name);
      keys_.missing.push_back(name);
      return;
    }
    std::unordered_set<std::string> known = {detail::kParams};
    for (const GroupField& field : format.group) {
      known.insert(field.name);
      const std::string field_name = name + "." + field.name;
      const StateValue* value = saved->find(field.name);
      if (value == nullptr) {
        if (!field.set) continue;
        if (strict_) refuse_missing(field_name);
        keys_.missing.push_back(field_name);
      } else if (field.set) {
        named(field_name, [&] { field.set(options, *value); });
        option_changes_.push_back({&group.options(), &field, *value});
      } else if (field.matters && value->boolean() != nullptr && *value->boolean() != *field.get(options).boolean()) {
        detail::throw_value_error(ErrorText(kOperation, "libtorch's optimizer cannot do what the state's did")
                                      .fact("optimizer", format.name)
                                      .fact("option", field_name)
                                      .fact("state", *value->boolean() ? "true" : "false")
                                      .help("an optimizer that does the same in both"));
      }
    }
    for (const auto& [key, value] : *saved) {
      if (!known.contains(text_of(key))) keys_.unexpected.push_back(name + "." + text_of(key));
    }
  }

  // Nothing where the state knows the parameter by none of its names.
  std::optional<std::string> saved_name(const Tensor& parameter) const {
    for (const std::string& name : detail::names_of(kOperation, names_, parameter)) {
      const StateValue* found = states_.find(name);
      if (found != nullptr && found->dict() != nullptr) return name;
    }
    return std::nullopt;
  }

  // `options` are those that the group will have.
  void check_state(const OptimizerFormat& format, Optimizer& optimizer, OptimizerOptions& group_options,
                   OptimizerOptions& options, const Tensor& parameter) {
    if (!format.has_state(options)) return;
    const std::optional<std::string> found = saved_name(parameter);
    const std::string name = "state." + (found ? *found : name_of(parameter));
    const StateDict* saved = found ? states_.at(*found).dict() : nullptr;
    if (saved == nullptr) {
      if (!parameter.requires_grad()) return;
      if (strict_) refuse_missing(name);
      keys_.missing.push_back(name);
      return;
    }
    StateChange change{&optimizer, &format, &group_options, parameter, {}};
    const auto trial = format.make_state();
    std::unordered_set<std::string> known;
    for (const StateField& field : format.state) {
      known.insert(field.name);
      const std::string field_name = name + "." + field.name;
      const StateValue* value = saved->find(field.name);
      if (value == nullptr || value->is_none()) {
        if (!field.needed(options, *trial) || field.may_lack) continue;
        if (strict_) refuse_missing(field_name);
        keys_.missing.push_back(field_name);
        continue;
      }
      if (field.like_parameter) {
        check_size(field_name, parameter, *value);
      } else {
        named(field_name, [&] { field.set(*trial, *value); });
      }
      change.values.push_back({&field, field_name, *value});
    }
    for (const auto& [key, value] : *saved) {
      if (!known.contains(text_of(key))) keys_.unexpected.push_back(name + "." + text_of(key));
    }
    state_changes_.push_back(std::move(change));
  }

  static void check_size(const std::string& name, const Tensor& parameter, const StateValue& value) {
    const Tensor* tensor = value.tensor();
    if (tensor != nullptr && tensor->defined() && tensor->sizes() == parameter.sizes()) return;
    detail::throw_value_error(ErrorText(kOperation, "a value does not fit its parameter")
                                  .fact("name", name)
                                  .fact("parameter", StateValue(parameter).kind())
                                  .fact("state", value.kind())
                                  .help("a state of the same module"));
  }

  void change_options() {
    for (const OptionChange& change : option_changes_) change.field->set(*change.options, change.value);
  }

  static OptimizerParamState& state_of(const StateChange& change) {
    auto& state = change.optimizer->state()[change.parameter.unsafeGetTensorImpl()];
    if (!state) state = detail::initial_state(*change.format, change.parameter, *change.options);
    return *state;
  }

  static Tensor target_of(const StateChange& change, OptimizerParamState& state, const StateField& field) {
    const StateValue there = field.get(state);
    if (!there.is_none()) return *there.tensor();
    const Tensor made =
        at::full_like(change.parameter.detach(), field.initial(*change.options), {}, at::MemoryFormat::Preserve);
    field.set(state, made);
    return made;
  }

  static c10::Device device_of(const Tensor& parameter) {
    return is_dtensor(parameter) ? mesh_of(parameter).device() : parameter.device();
  }

  // Memory for what is not of one element: that was told.
  static void add_memory(const StateChange::Value& item, const Tensor& parameter,
                         const std::map<std::string, Tensor>& values, std::map<std::string, Tensor>& arrived) {
    for (const auto& [name, tensor] : values) {
      if (tensor.numel() == 1 || (name != item.name && !name.starts_with(item.name + "."))) continue;
      arrived[name] = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).device(device_of(parameter)));
    }
  }

  static StateValue with_arrived(const std::string& name, const StateValue& value,
                                 const std::map<std::string, Tensor>& arrived) {
    if (const StateList* list = value.list()) {
      StateList items;
      for (size_t i = 0; i < list->size(); ++i) {
        items.push_back(with_arrived(fmt::format("{}.{}", name, i), (*list)[i], arrived));
      }
      return items;
    }
    const auto found = arrived.find(name);
    return found != arrived.end() ? StateValue(found->second) : value;
  }

  // Tensors that are the same on every rank, inside whatever holds them, with the parameter's dtype and device.
  static StateValue fitted(const StateValue& value, const Tensor& parameter) {
    if (const StateList* list = value.list()) {
      StateList items;
      for (const StateValue& item : *list) items.push_back(fitted(item, parameter));
      return items;
    }
    const Tensor* tensor = value.tensor();
    if (tensor == nullptr || !tensor->defined() || detail::is_in_parts(*tensor)) return value;
    const Tensor here = tensor->detach().to(
        device_of(parameter), tensor->is_floating_point() ? parameter.scalar_type() : tensor->scalar_type());
    if (!is_dtensor(parameter)) return here;
    return distribute_tensor(here, mesh_of(parameter), Placements(placements_of(parameter).size(), Replicate()),
                             {.source = std::nullopt});
  }

  detail::ParameterNames names_;
  Optimizers optimizers_;
  bool strict_;
  StateDict states_;
  StateList groups_;
  std::unordered_map<std::string, const StateDict*> groups_of_names_;
  std::unordered_set<std::string> used_;
  std::vector<OptionChange> option_changes_;
  std::vector<StateChange> state_changes_;
  IncompatibleKeys keys_;
};

}  // namespace

IncompatibleKeys set_optimizer_state_dict(const torch::nn::Module& module, const Optimizers& optimizers,
                                          const StateDict& state, const StateDictOptions& options) {
  detail::check_options(kOperation, options);
  Setter setter(module, optimizers, options);
  if (options.broadcast_from_rank0) {
    const StateDict told = detail::told_by_rank0(kOperation, state);
    agree(current_world().group(), kOperation, [&] { setter.check(told); });
    setter.apply_from_rank0();
  } else {
    setter.check(state);
    setter.apply();
  }
  return setter.keys();
}

IncompatibleKeys set_optimizer_state_dict(const torch::nn::Module& module, Optimizer& optimizer, const StateDict& state,
                                          const StateDictOptions& options) {
  return set_optimizer_state_dict(module, Optimizers{optimizer}, state, options);
}

}  // namespace sherd
