#include "parallel/axis_of.h"

#include <fmt/format.h>

#include "comm/errors.h"

namespace sherd::detail {

std::optional<int64_t> axis_of(const DeviceMesh& mesh, const DeviceMesh& axis) {
  if (!mesh.coordinate() || !axis.coordinate()) return std::nullopt;
  std::optional<int64_t> found;
  for (int64_t i = 0; i < mesh.ndim(); ++i) {
    if (mesh.group(i) != axis.group(0)) continue;
    // Axes of size 1 have one group between them: then the name decides.
    if (mesh.mesh().axes()[static_cast<size_t>(i)].name == axis.mesh().axes().front().name) return i;
    if (!found) found = i;
  }
  return found;
}

void require_one_axis(const char* operation, const DeviceMesh& axis) {
  if (axis.ndim() != 1) {
    throw_value_error(ErrorText(operation, "takes a mesh of one axis")
                          .fact("mesh", to_string(axis))
                          .help("slice it: mesh[\"name\"]"));
  }
  if (!axis.coordinate()) {
    throw_value_error(ErrorText(operation, "this rank is not in the mesh")
                          .fact("mesh", to_string(axis))
                          .fact("rank", std::to_string(axis.world().rank()))
                          .help("call it on the ranks of the mesh alone"));
  }
}

}  // namespace sherd::detail
