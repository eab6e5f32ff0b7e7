#include "sherd/model_state.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <unordered_set>

#include "checkpoint/full_state.h"
#include "checkpoint/listed.h"
#include "checkpoint/module_tensors.h"
#include "checkpoint/placing.h"
#include "checkpoint/sharing.h"
#include "checkpoint/skeleton.h"
#include "comm/errors.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/world.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::NamedTensor;

constexpr const char* kOperation = "set_model_state_dict";

constexpr size_t kMostShown = 20;

bool is_left_out(const NamedTensor& item, const StateDictOptions& options) {
  return options.ignore_frozen_params && item.is_parameter && !item.tensor.requires_grad();
}

// What goes where, once everything is known to fit.
struct Assignment {
  std::string name;
  Tensor target;
  Tensor value;
};

std::vector<Assignment> check_state(const torch::nn::Module& module, const StateDict& state,
                                    const StateDictOptions& options, IncompatibleKeys& keys) {
  std::vector<Assignment> assignments;
  std::unordered_set<std::string> known;
  for (const NamedTensor& item : detail::module_tensors(module)) {
    known.insert(item.name);
    const StateValue* value = state.find(item.name);
    if (value == nullptr) {
      if (!is_left_out(item, options)) keys.missing.push_back(item.name);
      continue;
    }
    const Tensor* tensor = value->tensor();
    if (tensor == nullptr || !tensor->defined() || tensor->sizes() != item.tensor.sizes()) {
      detail::throw_value_error(ErrorText(kOperation, "a value does not fit the module's tensor")
                                    .fact("name", item.name)
                                    .fact("module", StateValue(item.tensor).kind())
                                    .fact("state", value->kind())
                                    .help("a state of the same module"));
    }
    assignments.push_back({item.name, item.tensor, *tensor});
  }
  for (const auto& [key, value] : state) {
    const std::string name = to_string(StatePath{key});
    if (!known.contains(name)) keys.unexpected.push_back(name);
  }
  if (options.strict && (!keys.missing.empty() || !keys.unexpected.empty())) {
    detail::throw_error(ErrorText(kOperation, "the state has other keys than the module")
                            .fact("missing", detail::listed(keys.missing, kMostShown))
                            .fact("unexpected", detail::listed(keys.unexpected, kMostShown))
                            .help("{.strict = false} to take what is there"));
  }
  return assignments;
}

// Where parameters without memory get theirs: with the others.
c10::Device device_for(const std::vector<Assignment>& assignments) {
  for (const Assignment& item : assignments) {
    if (!item.target.is_meta()) return item.target.device();
  }
  for (const Assignment& item : assignments) {
    if (!item.value.is_meta()) return item.value.device();
  }
  return c10::kCPU;
}

void give_memory(const std::vector<Assignment>& assignments) {
  const c10::Device device = device_for(assignments);
  for (const Assignment& item : assignments) detail::give_memory(item.target, device);
}

}  // namespace

StateDict get_model_state_dict(const torch::nn::Module& module, const StateDictOptions& options) {
  detail::check_options("get_model_state_dict", options);
  StateDict state;
  for (const NamedTensor& item : detail::module_tensors(module)) {
    if (!is_left_out(item, options)) state[item.name] = item.tensor.detach();
  }
  return detail::with_options(state, options);
}

IncompatibleKeys set_model_state_dict(torch::nn::Module& module, const StateDict& state,
                                      const StateDictOptions& options) {
  detail::check_options(kOperation, options);
  IncompatibleKeys keys;
  if (!options.broadcast_from_rank0) {
    const std::vector<Assignment> assignments = check_state(module, state, options, keys);
    give_memory(assignments);
    for (const Assignment& item : assignments) detail::place(item.target, item.value);
    return keys;
  }
  const StateDict told = detail::told_by_rank0(kOperation, state);
  std::vector<Assignment> assignments;
  agree(current_world().group(), kOperation, [&] { assignments = check_state(module, told, options, keys); });
  give_memory(assignments);
  std::vector<detail::SharedTensor> tensors;
  for (const Assignment& item : assignments) tensors.push_back({item.name, item.target});
  std::map<std::string, Tensor> values;
  for (const auto& [key, value] : told) {
    if (value.tensor() != nullptr) values[to_string(StatePath{key})] = *value.tensor();
  }
  detail::share_out(tensors, values);
  return keys;
}

}  // namespace sherd
