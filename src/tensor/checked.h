#pragma once

#include "comm/errors.h"
#include "sherd/device_mesh.h"
#include "sherd/layout.h"
#include "tensor/xla.h"

namespace sherd::detail {

/// checked_placements, with c10::ValueError; an "xla" mesh is refused.
inline Placements checked(std::string_view operation, const DeviceMesh& mesh, const Dims& shape,
                          Placements placements) {
  refuse_xla_mesh(operation, mesh);
  return as_c10_errors([&] { return checked_placements(operation, mesh.mesh(), shape, std::move(placements)); });
}

}  // namespace sherd::detail
