#include "sharded/leaves.h"

#include <c10/core/GradMode.h>

#include "sharded/moves.h"
#include "tensor/leaf_hooks.h"

namespace sherd::detail {

void settle_leaf(const at::Tensor& tensor) {
  BoxesMeta* meta = boxes_of(tensor);
  if (meta == nullptr || !c10::GradMode::is_enabled()) return;
  if (tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr || !tensor.requires_grad()) return;
  if (!tensor.is_leaf()) return;  // detach_() may make it one
  if (meta->leaf_is_settled) {
    keep_leaf_hooks(tensor);
    return;
  }
  meta->leaf_is_settled = true;
  if (meta->layout->outer) {  // one rank's own: a gradient may be a plain tensor of its size
    const auto cut = [layout = meta->layout](const at::Tensor& grad) {
      return grad.defined() && boxes_of(grad) == nullptr ? cut_into(layout, grad) : grad;
    };
    register_leaf_hook(tensor, {cut});
  }
  if (sharded_layout(tensor) == nullptr) return;
  // The hook holds no reference to the tensor, which holds the hook.
  const auto bring = [layout = shared_layout(tensor)](const at::Tensor& grad) {
    return grad.defined() ? brought_to(grad, layout) : grad;
  };
  register_leaf_hook(tensor, {bring});
}

}  // namespace sherd::detail
