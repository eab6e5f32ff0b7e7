#pragma once
#include "sherd/device_mesh.h"
#include "sherd/world.h"

namespace sherd::detail {

/// All ranks of a mesh, this one among them.
inline Group group_of(const DeviceMesh& mesh) { return mesh.world().group(mesh.mesh().ranks()); }

}  // namespace sherd::detail
