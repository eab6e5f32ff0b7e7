#pragma once

#include "comm/errors.h"
#include "sherd/device_mesh.h"
#include "sherd/layout.h"

namespace sherd::detail {

/// checked_placements, with c10::ValueError.
inline Placements checked(std::string_view operation, const DeviceMesh& mesh, const Dims& shape,
                          Placements placements) {
  return as_c10_errors([&] { return checked_placements(operation, mesh.mesh(), shape, std::move(placements)); });
}

}  // namespace sherd::detail
