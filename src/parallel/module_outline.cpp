#include "sherd/module_outline.h"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <set>

namespace sherd {

ModuleOutline outline_of(const torch::nn::Module& module) {
  ModuleOutline outline;
  std::set<const c10::TensorImpl*> seen;  // a parameter that two modules share is one
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    outline.parameters.push_back({item.key(), item.value()});
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) outline.buffers.push_back({item.key(), item.value()});
  }
  const auto add_elements = [&](const std::string& path, const torch::nn::Module& of) {
    const bool list = of.as<torch::nn::ModuleListImpl>() != nullptr;
    const bool row = of.as<torch::nn::SequentialImpl>() != nullptr;
    if (!list && !row) return;
    for (const auto& child : of.named_children()) {
      (list ? outline.in_lists : outline.in_rows).push_back(path.empty() ? child.key() : path + "." + child.key());
    }
  };
  add_elements("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    outline.modules.push_back(item.key());
    add_elements(item.key(), *item.value());
  }
  return outline;
}

}  // namespace sherd
