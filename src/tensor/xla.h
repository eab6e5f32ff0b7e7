#pragma once
// "xla" meshes: the calls that go through the registered bridge, and the refusal of all others.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"
#include "sherd/xla_sharding.h"

namespace sherd::detail {

inline bool is_xla(const DeviceMesh& mesh) { return mesh.device_type() == c10::DeviceType::XLA; }

/// Throws c10::ValueError for an "xla" mesh: `operation` makes a DTensor, and XLA devices hold none.
void refuse_xla_mesh(std::string_view operation, const DeviceMesh& mesh);

/// The sharding under which `operation` gives the tensor to XLA. Throws c10::ValueError where no bridge is registered,
/// the tensor is distributed already, or XLA has no such sharding.
XlaSharding sharding_for_xla(std::string_view operation, const at::Tensor& tensor, const DeviceMesh& mesh,
                             const Placements& placements);

/// What the bridge makes of the tensor.
at::Tensor mark_for_xla(std::string_view operation, const at::Tensor& tensor, const DeviceMesh& mesh,
                        const Placements& placements);

/// The whole value of a tensor that the bridge has marked; nothing for others.
std::optional<at::Tensor> gather_from_xla(const at::Tensor& tensor);

}  // namespace sherd::detail
