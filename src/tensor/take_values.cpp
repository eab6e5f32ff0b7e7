#include "tensor/take_values.h"

#include <ATen/core/Tensor.h>

#include "sherd/collectives.h"

namespace sherd::detail {

void take_values_of(int source, const at::Tensor& local, const DeviceMesh& mesh, int64_t axis) {
  if (mesh.size(axis) == 1 || local.numel() == 0) return;
  const at::Tensor values = local.detach();
  const at::Tensor same = values.contiguous();
  broadcast(mesh.group(axis), same, source).wait();
  if (!same.is_alias_of(values)) values.copy_(same);
}

}  // namespace sherd::detail
