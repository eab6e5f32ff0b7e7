#include "parallel/place.h"

#include <c10/core/GradMode.h>

#include "sherd/dtensor.h"
#include "tensor/wishes.h"

namespace sherd::detail {

bool is_born_on(const at::Tensor& tensor, const DeviceMesh& mesh) {
  const WishesPtr wishes = wishes_of(tensor);
  return wishes != nullptr && wishes->is_born && mesh_of(tensor) == mesh;
}

void place(at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  if (!is_dtensor(tensor)) {
    distribute_parameter_(tensor, mesh, placements);
    return;
  }
  const bool requires_grad = tensor.requires_grad();
  const c10::NoGradGuard no_grad;
  const at::Tensor moved = redistribute(tensor.detach(), placements);
  set_wishes(moved, nullptr);
  tensor.set_data(moved);
  tensor.set_requires_grad(requires_grad);
}

}  // namespace sherd::detail
