#include "sherd/torch_script.h"

#include <torch/csrc/jit/api/module.h>

#include <set>

#include "parallel/distribute_tensors.h"
#include "parallel/same_modules.h"
#include "tensor/xla.h"

namespace sherd {

ModuleOutline outline_of(const torch::jit::Module& module) {
  ModuleOutline outline;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) {
    if (!item.value.defined() || !seen.insert(item.value.unsafeGetTensorImpl()).second) continue;
    outline.parameters.push_back({item.name, item.value});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/true)) {
    if (item.value.defined()) outline.buffers.push_back({item.name, item.value});
  }
  for (const auto& item : module.named_modules()) {
    if (!item.name.empty()) outline.modules.push_back(item.name);
  }
  return outline;
}

void distribute_module(torch::jit::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition) {
  constexpr const char* kOperation = "distribute_module";
  if (!detail::is_xla(mesh)) detail::compare_modules(kOperation, outline_of(module), mesh);
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) tensors.push_back({item.name, item.value});
  for (const auto& item : module.named_buffers(/*recurse=*/true)) tensors.push_back({item.name, item.value});
  detail::distribute_tensors(kOperation, tensors, mesh, partition);
}

}  // namespace sherd
