#include "checkpoint/module_tensors.h"

namespace sherd::detail {
namespace {

void add_tensors(const torch::nn::Module& module, const std::string& prefix, std::vector<NamedTensor>& tensors) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) tensors.push_back({prefix + item.key(), item.value(), true});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) tensors.push_back({prefix + item.key(), item.value(), false});
  }
  for (const auto& child : module.named_children()) add_tensors(*child.value(), prefix + child.key() + ".", tensors);
}

}  // namespace

std::vector<NamedTensor> module_tensors(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  add_tensors(module, "", tensors);
  return tensors;
}

ParameterNames parameter_names(const torch::nn::Module& module) {
  ParameterNames names;
  for (const NamedTensor& item : module_tensors(module)) {
    if (item.is_parameter) names[item.tensor.unsafeGetTensorImpl()].push_back(item.name);
  }
  return names;
}

}  // namespace sherd::detail
