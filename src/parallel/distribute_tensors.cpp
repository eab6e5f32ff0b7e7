#include "parallel/distribute_tensors.h"

#include <map>

#include "comm/errors.h"
#include "parallel/place.h"
#include "sherd/dtensor.h"
#include "tensor/xla.h"

namespace sherd::detail {
namespace {

struct Entry {
  std::string name;
  at::Tensor tensor;
  Placements placements;
};

}  // namespace

void distribute_tensors(const char* operation, const std::vector<NamedTensor>& tensors, const DeviceMesh& mesh,
                        const PartitionFunction& partition) {
  std::vector<Entry> entries;
  std::map<const c10::TensorImpl*, size_t> known;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) continue;
    if (is_dtensor(tensor) && !is_born_on(tensor, mesh)) {
      throw_value_error(ErrorText(operation, "the module is distributed already")
                            .fact("parameter", name)
                            .fact("it is", to_string(tensor))
                            .help("distribute a module once; sherd::redistribute moves a tensor"));
    }
    Placements placements =
        partition ? partition(name, tensor) : Placements(static_cast<size_t>(mesh.ndim()), Replicate());
    placements = as_c10_errors([&, &name = name, &tensor = tensor] {
      return checked_placements(std::string(operation) + " " + name, mesh.mesh(), tensor.sizes().vec(),
                                std::move(placements));
    });
    if (is_xla(mesh)) sharding_for_xla(std::string(operation) + " " + name, tensor, mesh, placements);
    const auto [same, fresh] = known.emplace(tensor.unsafeGetTensorImpl(), entries.size());
    if (fresh) {
      entries.push_back({name, tensor, std::move(placements)});
    } else if (const Entry& entry = entries[same->second]; entry.placements != placements) {
      throw_value_error(ErrorText(operation, "a tensor that two modules share is to be placed in two ways")
                            .fact(entry.name, to_string(entry.placements))
                            .fact(name, to_string(placements))
                            .help("the same placements under both names"));
    }
  }
  for (Entry& entry : entries) place(entry.tensor, mesh, entry.placements);
}

}  // namespace sherd::detail
