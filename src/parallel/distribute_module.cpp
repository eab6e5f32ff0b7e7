#include "parallel/call_wishes.h"
#include "parallel/distribute_tensors.h"
#include "parallel/same_modules.h"
#include "sherd/parallel.h"
#include "tensor/xla.h"

namespace sherd {

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition,
                       const TensorsFunction& input, const TensorsFunction& output) {
  constexpr const char* kOperation = "distribute_module";
  if (!detail::is_xla(mesh)) detail::compare_modules(kOperation, outline_of(module), mesh);
  if (input || output) detail::require_callable(kOperation, module);
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) tensors.push_back({item.key(), item.value()});
  detail::distribute_tensors(kOperation, tensors, mesh, partition);
  if (input || output) {
    detail::add_call_wish(
        module, {.who = kOperation, .mesh = mesh, .inputs = {.function = input}, .outputs = {.function = output}});
  }
}

}  // namespace sherd
