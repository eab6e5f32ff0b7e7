#include "sharded/leaves.h"

#include <c10/core/GradMode.h>

#include "sharded/moves.h"

namespace sherd::detail {

void settle_leaf(const at::Tensor& tensor) {
  BoxesMeta* meta = boxes_of(tensor);
  if (meta == nullptr || meta->leaf_is_settled || !c10::GradMode::is_enabled()) return;
  if (tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr || !tensor.requires_grad()) return;
  meta->leaf_is_settled = true;
  if (!tensor.is_leaf()) return;
  if (meta->layout->outer) {  // one rank's own: a gradient may be a plain tensor of its size
    tensor.register_hook([layout = meta->layout](const at::Tensor& grad) {
      return grad.defined() && boxes_of(grad) == nullptr ? cut_into(layout, grad) : grad;
    });
  }
  if (sharded_layout(tensor) == nullptr) return;
  // The hook holds no reference to the tensor, which holds the hook.
  tensor.register_hook([layout = shared_layout(tensor)](const at::Tensor& grad) {
    return grad.defined() ? brought_to(grad, layout) : grad;
  });
}

}  // namespace sherd::detail
