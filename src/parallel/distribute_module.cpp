#include <ATen/core/Tensor.h>

#include "comm/errors.h"
#include "sherd/dtensor.h"
#include "sherd/parallel.h"

namespace sherd {

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition) {
  struct Entry {
    std::string name;
    at::Tensor tensor;
    Placements placements;
  };
  std::vector<Entry> entries;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (!item.value().defined()) continue;
      if (is_dtensor(item.value())) {
        detail::throw_value_error(ErrorText("distribute_module", "the module is distributed already")
                                      .fact("parameter", item.key())
                                      .fact("it is", to_string(item.value()))
                                      .help("distribute a module once; sherd::redistribute moves a tensor"));
      }
      Placements placements =
          partition ? partition(item.key(), item.value()) : Placements(static_cast<size_t>(mesh.ndim()), Replicate());
      placements = detail::as_c10_errors([&] {
        return checked_placements("distribute_module " + item.key(), mesh.mesh(), item.value().sizes().vec(),
                                  std::move(placements));
      });
      entries.push_back({item.key(), item.value(), std::move(placements)});
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  for (Entry& entry : entries) distribute_parameter_(entry.tensor, mesh, entry.placements);
}

}  // namespace sherd
