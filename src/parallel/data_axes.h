#pragma once
// Putting the parameters of a module on data axes, beside the axes that they are on.

#include <optional>
#include <string>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/module_outline.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// A parameter or buffer, and where it is to lie.
struct DataAxisPlan {
  std::string name;
  at::Tensor tensor;
  DeviceMesh mesh;  // the axes it is on, and the data axes
  Placements placements;
  uint64_t data_axes = 0;  // bit a: axis a of `mesh`
};

/// How every parameter lies once it is on the axes of `data` too: replicated, or with `shards` cut along the last of
/// them. Throws c10::ValueError where one is on such an axis already, or cannot be.
std::vector<DataAxisPlan> plan_data_axes(const char* operation, const std::vector<NamedTensor>& parameters,
                                         const DeviceMesh& data, bool shards);

/// Moves them there. `source`: the place along the data axes whose values count.
void put_on_data_axes(const std::vector<DataAxisPlan>& plans, const std::optional<int>& source);

/// The same for buffers: replicated.
void replicate_buffers(const std::vector<NamedTensor>& buffers, const DeviceMesh& data,
                       const std::optional<int>& source);

}  // namespace sherd::detail
