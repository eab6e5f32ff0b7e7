#pragma once

#include <optional>

#include "sherd/device_mesh.h"

namespace sherd::detail {

/// The axis of `mesh` that is `axis`, a mesh of one axis: the same ranks talk along it. Nothing where there is none, or
/// this rank is in neither.
std::optional<int64_t> axis_of(const DeviceMesh& mesh, const DeviceMesh& axis);

/// Throws c10::ValueError where `axis` has not exactly one axis, or this rank is not in it.
void require_one_axis(const char* operation, const DeviceMesh& axis);

}  // namespace sherd::detail
